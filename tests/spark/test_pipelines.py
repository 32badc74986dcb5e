"""The pipelines on real data, with a real cluster and a real Spark."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.pipelines import base, logs, orders, table
from stele import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.processes

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
RETAIL, LOGHUB = DATA / "online-retail.csv.gz", DATA / "loghub"
LINES = 3_000


@pytest.fixture
def settings(bootstrap: str, tmp_path: Path) -> Callable[[str], base.Settings]:
    def make(prefix: str) -> base.Settings:
        arguments = ["--bootstrap-server", bootstrap, "--prefix", prefix, "--at-least-once"]
        arguments += ["--checkpoints", str(tmp_path), "--max-offsets-per-trigger", "20000"]
        return base.settings(base.parser("test", "").parse_args(arguments))

    return make


def twin(lines: int, limit: int, units: int) -> tuple[dict[str, list[Any]], int]:
    """Sums by country, and how many lines fail a check, without Spark."""
    sums: dict[str, list[Any]] = {}
    failed = 0
    with gzip.open(RETAIL, "rt") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if number == lines:
                break
            quantity, price = int(row["Quantity"]), Decimal(row["UnitPrice"])
            entry = sums.setdefault(row["Country"], [0, 0, Decimal(0)])
            entry[0] += 1
            entry[1] += quantity
            entry[2] += quantity * price
            failed += price < 0 or abs(quantity * price) > limit or quantity > units
    return sums, failed


@pytest.mark.skipif(not RETAIL.exists(), reason=f"{RETAIL} is not here")
def test_orders_add_up_to_what_their_lines_say(
    spark: SparkSession, settings: Callable[[str], base.Settings]
) -> None:
    these = settings("first-")
    base.ensure_topics(these, *orders.TOPICS, compacted=orders.TABLES)
    assert orders.load(RETAIL, these, units=100, most=LINES) == LINES
    said: list[str] = []
    base.run(these, orders.stages(spark, these, 300, "60 days"), said.append)
    assert any(line.startswith("first-checks") and f"{LINES:,} rows" in line for line in said)
    found = orders.totals(spark, these)
    sums, failed = twin(LINES, limit=300, units=100)
    assert {row[0]: [row[1], row[4], row[5]] for row in found["countries"]} == {
        name: [lines, quantity, f"{revenue:,.2f}"]
        for name, (lines, quantity, revenue) in sums.items()
    }
    assert (found["lines"], found["failed"]) == (LINES, failed)
    assert failed > 0


def test_a_topic_is_a_table_now_and_as_of_offsets(
    spark: SparkSession, settings: Callable[[str], base.Settings], bootstrap: str
) -> None:
    these = settings("table-")
    base.ensure_topics(these, compacted=["prices"])
    with Producer(bootstrap) as producer:
        for key, value in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)]:
            producer.send(these.topic("prices"), value, key, partition=0)

    def rows(ends: dict[str, str]) -> dict[str, str]:
        return {row.key: row.value for row in table.as_of(spark, these, "prices", ends).collect()}

    assert rows({}) == {"a": "3"}
    assert rows({"endingOffsets": '{"table-prices": {"0": 2}}'}) == {"a": "1", "b": "2"}


@pytest.mark.skipif(not LOGHUB.exists(), reason=f"{LOGHUB} is not here")
def test_every_log_line_is_parsed_or_a_dead_letter(
    spark: SparkSession, settings: Callable[[str], base.Settings], bootstrap: str, tmp_path: Path
) -> None:
    these = settings("logs-")
    base.ensure_topics(these, *logs.TOPICS, compacted=[logs.RATES])
    assert logs.load(LOGHUB, these) == 15_994
    with Producer(bootstrap) as producer:
        for service, line in [(b"apache", b"no such line"), (b"nginx", b"GET /"), (b"linux", b"")]:
            producer.send(these.topic(logs.LOGS), line, service)
    archive = tmp_path / "archive"
    base.run(these, logs.stages(spark, these, archive, "3650 days", 0.5), lambda line: None)
    found = logs.totals(spark, these)
    assert (found["parsed"], found["lost"]) == (15_994, 3)
    assert {reason for _, reason, _ in found["dead"]} == {
        "not a line of the service apache",
        "no format is known for the service nginx",
        "an empty line",
    }
    archived = spark.read.parquet(str(archive)).groupBy("service").count().collect()
    assert sum(row["count"] for row in archived) == 15_997
    counted = Counter({row.service: row["count"] for row in archived})
    assert counted["hdfs"] == 2_000
    rates = base.table_of(spark, these, logs.RATES, logs.RATES_ROW)
    assert rates.selectExpr("sum(lines)").first()[0] == 15_994  # type: ignore[index]
