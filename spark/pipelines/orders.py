"""Order lines, from raw text to revenue by country and hour.

    orders ──► checks ──► order-validations ──► verdicts ──► orders-validated, orders-failed
                 ▲                                               │
               stock (a table)                                   └─► revenue ──► order-revenue

Three queries, each with its own checkpoint:

- ``checks`` parses each line and applies three rules to it. Each rule writes a verdict of its own.
- ``verdicts`` waits for all verdicts of a line, and writes it to one of two topics.
- ``revenue`` adds up what both have by country and hour. Cancelled invoices have negative
  quantities, and so are subtracted. Lines more than ``--late`` behind are left out and counted.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base
from spark.pipelines.order_rules import (
    CHECKS,
    FRAUD_LIMIT,
    details,
    fraud,
    inventory,
    is_cancelled,
    parsed,
)

ORDERS, VALIDATIONS, VALIDATED, FAILED = (
    "orders",
    "order-validations",
    "orders-validated",
    "orders-failed",
)
STOCK, REVENUE = "stock", "order-revenue"
TOPICS, TABLES = (ORDERS, VALIDATIONS, VALIDATED, FAILED), (STOCK, REVENUE)

VERDICTS_LATE = "7 days"
VERDICT = "check STRING, reason STRING, at TIMESTAMP, line STRING"
LINE = "line STRING, reasons ARRAY<STRING>"
STOCK_ROW = "units INT"
REVENUE_ROW = (
    "status STRING, country STRING, hour TIMESTAMP, lines BIGINT, quantity BIGINT, "
    "revenue DECIMAL(30, 4), cancelled BIGINT"
)


def checks(session: SparkSession, settings: base.Settings, limit: int) -> DataFrame:
    """One verdict per line and rule. Its key is the line's place in the topic."""
    stock = base.table_of(session, settings, STOCK, STOCK_ROW)
    lines = base.stream_of(session, settings, ORDERS).select(
        fn.concat_ws("-", "partition", "offset").alias("id"),
        fn.col("timestamp").alias("at"),
        fn.col("value").cast("string").alias("line"),
        parsed(fn.col("value")).alias("order"),
    )
    order = fn.col("order")
    known = lines.join(
        fn.broadcast(stock.withColumnRenamed("key", "product")),
        fn.col("order.stock_code") == fn.col("product"),
        "left",
    )
    reasons = (details(order), fraud(order, limit), inventory(order, fn.col("units")))
    verdicts = fn.array(
        *(
            fn.struct(fn.lit(check).alias("check"), reason.alias("reason"))
            for check, reason in zip(CHECKS, reasons, strict=True)
        )
    )
    exploded = known.select("id", "at", "line", fn.explode(verdicts).alias("verdict"))
    # One of the verdicts takes the line along, so that it is stored once.
    line = fn.when(fn.col("verdict.check") == CHECKS[0], fn.col("line"))
    fields = ("verdict.check", "verdict.reason", "at", line.alias("line"))
    return base.as_records(exploded, fn.col("id"), fields, settings.topic(VALIDATIONS))


def verdicts(session: SparkSession, settings: base.Settings) -> DataFrame:
    """Each line once, as soon as all rules have spoken. They tell the time of the line's record, so
    that what has been waited for ``VERDICTS_LATE`` can be forgotten."""
    records = base.stream_of(session, settings, VALIDATIONS)
    verdict = fn.from_json(fn.col("value").cast("string"), VERDICT)
    joined = (
        records.select(fn.col("key").cast("string").alias("id"), verdict.alias("v"))
        .select("id", "v", fn.col("v.at").alias("at"))
        .withWatermark("at", VERDICTS_LATE)
        .groupBy("id", fn.window("at", "1 day"))
        .agg(
            fn.count("*").alias("count"),
            fn.max("v.line").alias("line"),
            fn.collect_set(
                fn.when(fn.col("v.reason").isNotNull(), fn.concat_ws(": ", "v.check", "v.reason"))
            ).alias("reasons"),
        )
        .where(fn.col("count") == len(CHECKS))
    )
    topic = fn.when(fn.size("reasons") == 0, settings.topic(VALIDATED)).otherwise(
        settings.topic(FAILED)
    )
    return base.as_records(joined, fn.col("id"), ("line", "reasons"), topic)


def revenue(session: SparkSession, settings: base.Settings, late: str) -> DataFrame:
    """The rows of the table of revenue that a batch changes."""
    records = base.stream_of(session, settings, VALIDATED, FAILED)
    line = fn.from_json(fn.col("value").cast("string"), LINE)
    orders = records.select(
        fn.regexp_extract("topic", "orders-(.*)$", 1).alias("status"),
        parsed(line["line"]).alias("order"),
    ).select("status", "order.*")
    sums = (
        orders.withWatermark("invoice_date", late)
        .groupBy("status", "country", fn.window("invoice_date", "1 hour").alias("hour"))
        .agg(
            fn.count("*").alias("lines"),
            fn.sum("quantity").alias("quantity"),
            fn.sum(fn.col("quantity") * fn.col("unit_price")).alias("revenue"),
            fn.sum(is_cancelled(fn.struct("invoice")).cast("int")).alias("cancelled"),
        )
        .withColumn("hour", fn.col("hour.start"))
    )
    key = fn.concat_ws("|", "status", "country", fn.col("hour").cast("string"))
    fields = ("status", "country", "hour", "lines", "quantity", "revenue", "cancelled")
    return base.as_records(sums, key, fields, settings.topic(REVENUE))


# --------------------------------------------------------------------------------- result


def totals(session: SparkSession, settings: base.Settings) -> dict[str, Any]:
    """What the table of revenue says: totals, and rows by country."""
    table = base.table_of(session, settings, REVENUE, REVENUE_ROW).cache()
    status = fn.col("status")
    by_country = (
        table.groupBy("country")
        .agg(
            fn.sum("lines").alias("lines"),
            fn.sum(fn.when(status == "failed", fn.col("lines")).otherwise(0)).alias("failed"),
            fn.sum("cancelled").alias("cancelled"),
            fn.sum("quantity").alias("quantity"),
            fn.sum("revenue").alias("revenue"),
        )
        .collect()
    )
    hours = (
        table.groupBy("country", "hour")
        .agg(fn.sum("revenue").alias("revenue"))
        .groupBy("country")
        .agg(fn.max_by("hour", "revenue").alias("hour"))
        .collect()
    )
    table.unpersist()
    busiest = {row.country: f"{row.hour:%Y-%m-%d %H:00}" for row in hours if row.hour is not None}
    ranked = sorted(by_country, key=lambda row: (-(row.revenue or 0), str(row.country)))
    lines = sum(row.lines for row in ranked)
    return {
        "lines": lines,
        "left_out": base.left_out(session, settings, lines, VALIDATED, FAILED),
        "failed": sum(row.failed for row in ranked),
        "quantity": sum(row.quantity or 0 for row in ranked),
        "revenue": sum((row.revenue or Decimal(0) for row in ranked), Decimal(0)),
        "countries": [
            (
                row.country or "(none)",
                row.lines,
                row.failed,
                row.cancelled or 0,
                row.quantity or 0,
                f"{row.revenue or 0:,.2f}",
                busiest.get(row.country, ""),
            )
            for row in ranked
        ],
    }


def show(found: dict[str, Any]) -> None:
    base.show(
        "Revenue by country",
        ("country", "lines", "failed", "cancelled", "quantity", "revenue", "busiest hour"),
        found["countries"][:15],
    )
    print(
        f"\n{found['lines']:,} lines ({found['failed']:,} failed a check), "
        f"quantity {found['quantity']:,}, revenue {found['revenue']:,.2f}"
        f"{base.say_left_out(found['left_out'])}"
    )


# ---------------------------------------------------------------------------------- input


def load(path: Path, settings: base.Settings, units: int, most: int | None = None) -> int:
    """Write the lines of a CSV file into the topic of orders, keyed by invoice, and a stock of
    ``units`` of each product. Returns the number of lines."""
    products: set[str] = set()
    count = 0
    with base.producer(settings, "zstd") as producer:
        for row, line in _rows(path):
            if count == most:
                break
            count += 1
            products.add(row[1])
            producer.send(settings.topic(ORDERS), line, row[0].encode())
        for product in sorted(products):
            stock = b'{"units": %d}' % units
            producer.send(settings.topic(STOCK), stock, product.encode())
    return count


def _rows(path: Path) -> Iterator[tuple[list[str], bytes]]:
    """Each line of the file without its header: its fields, and its text."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        next(lines)
        for line in lines:
            text = line.rstrip("\r\n")
            yield next(csv.reader([text])), text.encode()


# ---------------------------------------------------------------------------------- start


def stages(session: SparkSession, settings: base.Settings, limit: int, late: str) -> list[Any]:
    def start_checks() -> StreamingQuery:
        return base.to_topics(checks(session, settings, limit), settings, "checks")

    def start_verdicts() -> StreamingQuery:
        return base.changes_to_topics(verdicts(session, settings), settings, "verdicts")

    def start_revenue() -> StreamingQuery:
        return base.changes_to_topics(revenue(session, settings, late), settings, "revenue")

    return [start_checks, start_verdicts, start_revenue]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = base.parser("orders", (__doc__ or "").splitlines()[0])
    parser.add_argument("--load", type=Path, metavar="FILE", help="first write this CSV file")
    parser.add_argument("--units", type=int, default=5_000, help="of each product, with --load")
    parser.add_argument("--fraud-limit", type=int, default=FRAUD_LIMIT)
    parser.add_argument("--late", default="60 days", help="how late a line may come")
    options: argparse.Namespace = parser.parse_args(arguments)
    settings = base.settings(options)

    def run() -> None:
        session = base.session("orders")
        base.ensure_topics(settings, *TOPICS, compacted=TABLES)
        if options.load is not None:
            count = load(options.load, settings, options.units)
            print(f"{count:,} lines are in {settings.topic(ORDERS)}")
        base.run(settings, stages(session, settings, options.fraud_limit, options.late))
        show(totals(session, settings))

    return base.exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
