"""Statistics of a topic of order lines: lines, quantity, revenue, the top five countries.

Run it with spark-submit, or as ``python -m spark.orders --bootstrap-server 127.0.0.1:9092``.
"""

from __future__ import annotations

import argparse
import json
from decimal import Decimal
from typing import TypedDict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import stele
import stele.spark
from spark.pipelines.order_rules import order_lines
from stele.security.properties import as_properties


class Country(TypedDict):
    country: str
    lines: int
    revenue: str


class Figures(TypedDict):
    lines: int
    quantity: int
    revenue: str
    top_countries: list[Country]


def figures(orders: DataFrame, top: int = 5) -> Figures:
    """Sums are decimal. One pass over the records computes the sums by country, and the totals are
    made from these."""
    by_country = (
        orders.groupBy("country")
        .agg(
            fn.count("*").alias("lines"),
            fn.sum("quantity").alias("quantity"),
            fn.sum(fn.col("quantity") * fn.col("unit_price")).alias("revenue"),
        )
        .collect()
    )
    ranked = sorted(by_country, key=lambda row: (-row.revenue, row.country))
    return {
        "lines": sum(row.lines for row in by_country),
        "quantity": sum(row.quantity for row in by_country),
        "revenue": f"{sum((row.revenue for row in by_country), Decimal(0)):.2f}",
        "top_countries": [
            {"country": row.country, "lines": row.lines, "revenue": f"{row.revenue:.2f}"}
            for row in ranked[:top]
        ],
    }


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spark.orders", description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    parser.add_argument("--command-config", help="a file with properties of the client")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--starting-offsets", default="earliest")
    parser.add_argument("--ending-offsets", default="latest")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def main() -> None:
    arguments = _parse_arguments()
    session = (
        SparkSession.builder.appName("stele-orders")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        stele.spark.register(session)
        security = as_properties(stele.security_options(arguments.command_config))
        records = (
            session.read.format("stele")
            .option("bootstrap.servers", arguments.bootstrap_server)
            .options(**{f"kafka.{name}": value for name, value in security.items()})
            .option("subscribe", arguments.topic)
            .option("startingOffsets", arguments.starting_offsets)
            .option("endingOffsets", arguments.ending_offsets)
            .load()
        )
        result = figures(order_lines(records))
    finally:
        session.stop()
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"lines     {result['lines']:>15,}")
    print(f"quantity  {result['quantity']:>15,}")
    print(f"revenue   {Decimal(result['revenue']):>15,.2f}")
    for place, country in enumerate(result["top_countries"], 1):
        print(f"  {place}. {country['country']:<20} {Decimal(country['revenue']):>15,.2f}")


if __name__ == "__main__":
    main()
