"""The pipelines on real data, with a real cluster and a real Spark."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.pipelines import activity, base, logs, metrics, orders, replay, table
from stele import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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


def test_a_new_checkpoint_writes_the_changes_of_its_batches_again(
    spark: SparkSession, settings: Callable[[str], base.Settings], bootstrap: str
) -> None:
    """Its batches have the numbers of the former checkpoint's batches."""
    these = replace(settings("again-"), exactly_once=True)
    base.ensure_topics(these, "words", "counts")
    with Producer(bootstrap) as producer:
        producer.send("again-words", b"1", key=b"a")

    def count() -> StreamingQuery:
        counts = base.stream_of(spark, these, "words").groupBy("key").count()
        changes = base.as_records(counts, counts["key"], ["count"], "again-counts")
        return base.changes_to_topics(changes, these, "count")

    base.run(these, [count], lambda _: None)
    base.run(these, [count], lambda _: None)
    assert base.batch_of(spark, these, "counts").count() == 1
    shutil.rmtree(these.checkpoints / "count")
    base.run(these, [count], lambda _: None)
    assert base.batch_of(spark, these, "counts").count() == 2


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


@pytest.mark.parametrize("source", [base.STELE, base.KAFKA])
def test_clicks_meet_the_searches_before_them_in_any_order(
    spark: SparkSession,
    settings: Callable[[str], base.Settings],
    request: pytest.FixtureRequest,
    source: str,
) -> None:
    if source == base.KAFKA:
        request.getfixturevalue("kafka_source")
    these = replace(settings(f"activity-{source}-"), format=source)
    base.ensure_topics(these, *activity.TOPICS, compacted=[activity.COUNTS])
    activity.load(these, seed=3, count=300)
    base.run(these, activity.stages(spark, these, "10 minutes", "5 minutes"), lambda line: None)
    made = list(activity.events(3, 300))
    times = [datetime.datetime.fromisoformat(event["time"]) for _, event in made]
    pairs = list(zip(made, times, strict=True))
    expected = Counter(
        (click["user"], search["query"], click["page"])
        for (topic, click), at in pairs
        if topic == activity.CLICKS
        for (other, search), before in pairs
        if other == activity.SEARCHES
        and search["user"] == click["user"]
        and datetime.timedelta(0) <= at - before <= datetime.timedelta(minutes=5)
    )
    found = base.rows_of(base.batch_of(spark, these, activity.VISITS), activity.VISIT).collect()
    assert Counter((row.user, row.query, row.page) for row in found) == expected
    per_minute = Counter(
        (f"{at:%Y-%m-%d %H:%M}", event["page"])
        for (topic, event), at in pairs
        if topic == activity.CLICKS
    )
    shown = activity.totals(spark, these, rows=1_000)
    assert (shown["visits"], shown["clicks"]) == (expected.total(), 300)
    assert {(minute, page): count for minute, _, page, count in shown["pages"]}.items() <= (
        per_minute.items()
    )
    assert [count for _, rank, _, count in shown["pages"] if rank == 1] == [
        max(count for (each, _), count in per_minute.items() if each == minute)
        for minute in sorted({minute for minute, _ in per_minute}, reverse=True)
    ]


def send_events(settings: base.Settings, events: list[tuple[str, dict[str, str]]]) -> None:
    with Producer(settings.bootstrap_servers) as producer:
        for topic, event in events:
            value = json.dumps(event).encode()
            producer.send(settings.topic(topic), value, event["user"].encode())


def test_events_behind_the_watermark_are_left_out_and_counted(
    spark: SparkSession, settings: Callable[[str], base.Settings]
) -> None:
    """A run gets events that are older than the watermark of earlier runs, by a second or by
    minutes, mixed with others that are just young enough. All clicks are alone in their minute."""
    these = settings("late-")
    base.ensure_topics(these, *activity.TOPICS, compacted=[activity.COUNTS])

    def event(topic: str, user: str, seconds: int) -> tuple[str, dict[str, str]]:
        time = (activity.BEGIN + datetime.timedelta(seconds=seconds)).isoformat()
        what = {"query": "mug"} if topic == activity.SEARCHES else {"page": "/mug"}
        return topic, {"user": user, "time": time, **what}

    def run() -> list[str]:
        said: list[str] = []
        base.run(these, activity.stages(spark, these, "5 minutes", "5 minutes"), said.append)
        return said

    in_time = [
        event(activity.SEARCHES, "one", 1790),
        event(activity.CLICKS, "one", 1800),
        event(activity.SEARCHES, "none", 1800),
    ]
    # A batch drops what is behind the watermark of the batch before it, which knows the times of
    # the batch before that.
    for events in (in_time, [event(each, "zero", 1740) for each in activity.TOPICS[:2]]):
        send_events(these, events)
        assert not any("late" in line.split() for line in run())
    watermark = 1800 - 300
    young = [
        event(activity.SEARCHES, "two", watermark + 1),
        event(activity.CLICKS, "two", watermark + 2),
        event(activity.CLICKS, "one", 1860),  # after a search of the first run
    ]
    old = [
        event(activity.SEARCHES, "three", watermark - 1),
        event(activity.CLICKS, "three", watermark - 90),
        event(activity.CLICKS, "three", watermark - 600),
        event(activity.CLICKS, "one", watermark - 30),
    ]
    send_events(these, [old[0], young[0], old[1], young[1], old[2], young[2], old[3]])
    said = run()
    late = {line.split()[0]: line.split()[-1] for line in said if "late" in line.split()}
    assert late == {"late-visits": "4", "late-counts": "3"}
    found = activity.totals(spark, these, rows=10)
    assert (found["clicks"], found["left_out"]) == (4, 3)
    visits = base.rows_of(base.batch_of(spark, these, activity.VISITS), activity.VISIT).collect()
    pairs = sorted((row.user, (row.clicked - row.searched).total_seconds()) for row in visits)
    assert pairs == [("one", 10), ("one", 70), ("two", 1), ("zero", 0)]
    with Admin(these.bootstrap_servers) as admin:  # as retention does
        clicks = these.topic(activity.CLICKS)
        admin.delete_records({(clicks, number): -1 for number in range(these.partitions)})
    assert base.left_out(spark, these, found["clicks"], activity.CLICKS) is None


@pytest.mark.skipif(not RETAIL.exists(), reason=f"{RETAIL} is not here")
def test_measurements_are_summed_up_by_windows(
    spark: SparkSession, settings: Callable[[str], base.Settings]
) -> None:
    these = settings("metrics-")
    base.ensure_topics(these, metrics.METRICS, compacted=[metrics.WINDOWS, metrics.HISTORY])
    assert metrics.load(RETAIL, these, most=2_000) == 2_000
    stages = metrics.stages(spark, these, ("1 hour", "30 minutes"), "1 day", "60 days")
    base.run(these, stages, lambda line: None)
    expected: dict[tuple[str, str], list[float]] = {}
    for each in metrics.order_totals(RETAIL, 2_000):
        expected.setdefault((each["name"], each["time"][:10]), []).append(each["value"])
    history = base.table_of(spark, these, metrics.HISTORY, metrics.SUMMARY).collect()
    assert {(row.name, str(row.start)[:10]): row["count"] for row in history} == {
        place: len(values) for place, values in expected.items()
    }
    for row in history:
        values = sorted(expected[row.name, str(row.start)[:10]])
        assert row.average == pytest.approx(sum(values) / len(values))
        assert (row.min, row.max) == (values[0], values[-1])
        assert row.per_second == pytest.approx(len(values) / 86_400)
        rank = values.index(row.p50) + values.count(row.p50)
        assert abs(rank - len(values) / 2) <= len(values) / metrics.ACCURACY + values.count(row.p50)
    windows = base.table_of(spark, these, metrics.WINDOWS, metrics.SUMMARY)
    assert windows.selectExpr("sum(count)").first()[0] == 2 * 2_000  # type: ignore[index]
    shown = metrics.totals(spark, these, rows=3)
    assert (shown["measurements"], len(shown["busiest"])) == (2_000, 3)


def test_a_new_version_of_a_rule_is_compared_with_the_one_before(
    spark: SparkSession, settings: Callable[[str], base.Settings], bootstrap: str
) -> None:
    these = settings("replay-")
    base.ensure_topics(these, "lines")
    begin_ms = time.time_ns() // 1_000_000 - 20_000  # retention deletes old records
    with Producer(bootstrap) as producer:
        for number in range(20):
            line = f"1,a,,{number},2010-12-01 08:00:00,10,,UK".encode()
            time_ms = begin_ms + number * 1_000
            producer.send(these.topic("lines"), line, timestamp_ms=time_ms, partition=0)

    def run(into: str, limit: str, begin: int, end: int) -> None:
        base.ensure_topics(these, into)

        def start() -> StreamingQuery:
            frame = replay.replayed(
                spark,
                these,
                "lines",
                into,
                lambda records: replay.judged_orders(records, limit=limit),
                begin_ms + begin * 1_000,
                begin_ms + end * 1_000,
            )
            return base.to_topics(frame, these, f"replay-{into}")

        base.run(these, [start], lambda line: None)

    run("before", "100", 5, 15)
    run("now", "120", 6, 20)
    found = replay.compared(spark, these, "before", "now", rows=3)
    assert found["counts"] == {"same": 5, "different": 4, "only before": 1, "only now": 5}
    assert [row[:2] for row in found["examples"]] == [
        ("different", f"{these.topic('lines')}-0-11"),
        ("different", f"{these.topic('lines')}-0-12"),
        ("different", f"{these.topic('lines')}-0-13"),
    ]


def test_rules_are_named_by_module_and_function() -> None:
    assert replay.rule_of("orders") is replay.judged_orders
    assert replay.rule_of("spark.pipelines.replay:judged_orders") is replay.judged_orders
    with pytest.raises(base.PipelineError, match="a rule is MODULE:FUNCTION or one of orders"):
        replay.rule_of("no.such:rule")
    assert replay.parameters_of(["limit=3", "text=a=b"]) == {"limit": "3", "text": "a=b"}
    with pytest.raises(base.PipelineError, match="--set is NAME=VALUE"):
        replay.parameters_of(["limit"])
