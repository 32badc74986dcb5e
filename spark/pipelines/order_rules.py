"""Order lines and the three rules that check them. Column functions, without streams."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

# A value is one CSV line of UCI's "Online Retail" data.
ORDER_SCHEMA = (
    "invoice STRING, stock_code STRING, description STRING, quantity INT, "
    "invoice_date TIMESTAMP, unit_price DECIMAL(18, 4), customer STRING, country STRING"
)
_CSV = {"escape": '"', "timestampFormat": "yyyy-MM-dd HH:mm:ss"}

FRAUD_LIMIT = 10_000
"""A line whose total is beyond it, in either direction, is looked at by somebody."""

CHECKS = ("details", "fraud", "inventory")


def order_lines(records: DataFrame) -> DataFrame:
    """The order lines in the ``value`` column of a frame of records. A line that cannot be parsed
    fails the query."""
    parsed = fn.from_csv(fn.col("value").cast("string"), ORDER_SCHEMA, {**_CSV, "mode": "FAILFAST"})
    return records.select(parsed.alias("order")).select("order.*")


def parsed(value: Column) -> Column:
    """The order line as a struct. Fields that cannot be parsed are null."""
    return fn.from_csv(value.cast("string"), ORDER_SCHEMA, {**_CSV, "mode": "PERMISSIVE"})


def details(order: Column) -> Column:
    """The reason why a line is not well-formed; null if it is."""
    return (
        fn.when(order["invoice"].isNull(), "no invoice")
        .when(order["stock_code"].isNull(), "no stock code")
        .when(order["quantity"].isNull() | (order["quantity"] == 0), "no quantity")
        .when(order["unit_price"].isNull(), "no price")
        .when(order["unit_price"] < 0, "a negative price")
        .when(order["invoice_date"].isNull(), "no date")
        .when(order["country"].isNull(), "no country")
    )


def fraud(order: Column, limit: int = FRAUD_LIMIT) -> Column:
    """The reason why a line's total is suspicious; null if it is not."""
    total = fn.abs(order["quantity"] * order["unit_price"])
    return fn.when(total > limit, fn.concat(fn.lit(f"a total beyond {limit}: "), total))


def inventory(order: Column, units: Column) -> Column:
    """The reason why the stock does not allow a line; null if it does. ``units`` is what the stock
    has of the product, null for a product that it does not have. Returns need no stock."""
    return (
        fn.when(order["quantity"] <= 0, None)
        .when(units.isNull(), "not in stock")
        .when(order["quantity"] > units, fn.concat(fn.lit("only in stock: "), units))
    )


def is_cancelled(order: Column) -> Column:
    """Invoices that begin with C take earlier lines back, with negative quantities."""
    return order["invoice"].startswith("C")
