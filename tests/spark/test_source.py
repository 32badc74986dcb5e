"""Batch reads and plain writes with a real cluster.

Spark takes seconds for each query. So most tests use the readers and writers without it.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import IntegerType, StringType, StructType

import stele.spark
from stele import Admin, Consumer, NewTopic, Producer
from stele.spark import reading
from stele.spark.batch import SteleReader
from stele.spark.cluster import open_consumer
from stele.spark.kept_clients import KeptClients
from stele.spark.offsets import OffsetRange
from stele.spark.options import SourceOptions
from stele.spark.reading import read_range
from stele.spark.source import SteleDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.processes

BEGIN_MS = 1_600_000_000_000
SHORT = {"kafka.default.api.timeout.ms": "1000"}


@pytest.fixture(scope="module")
def numbers(bootstrap: str, create_topic: Callable[..., str]) -> str:
    """A topic of two partitions with 60 and 40 numbers, one per second from BEGIN_MS on. Retention
    leaves records of that age alone."""
    topic = create_topic(partitions=2, retention_ms="-1")
    with Producer(bootstrap, compression="zstd", batch_size=500) as producer:
        for number in range(100):
            producer.send(
                topic,
                b"%d" % number,
                b"key" if number % 2 else None,
                [("parity", b"odd")] if number % 2 else [],
                BEGIN_MS + number * 1000,
                partition=0 if number < 60 else 1,
            )
    return topic


@pytest.fixture
def read(spark: SparkSession, bootstrap: str) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        reader = spark.read.format("stele").option("bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    return load


def failure(action: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own
        action()
    return str(caught.value)


def test_rows_have_the_schema_of_sparks_kafka_source(
    read: Callable[..., DataFrame], numbers: str
) -> None:
    frame = read(subscribe=numbers, includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second, *_ = frame.orderBy("partition", "offset").collect()
    assert (first.key, bytes(first.value), first.topic) == (None, b"0", numbers)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    assert first.headers is None
    assert [(each.key, bytes(each.value)) for each in second.headers] == [("parity", b"odd")]
    assert frame.selectExpr("min(unix_millis(timestamp))").first()[0] == BEGIN_MS  # type: ignore[index]


@pytest.fixture
def table(bootstrap: str) -> Callable[..., tuple[pa.Table, int]]:
    """What a query reads, and in how many tasks it does so."""

    def load(*filters: Filter, **options: str) -> tuple[pa.Table, int]:
        reader = SteleReader(SourceOptions.parse({"bootstrap.servers": bootstrap, **options}))
        left = list(reader.pushFilters(list(filters)))
        assert all(each in filters for each in left)
        tasks = reader.partitions()
        batches = [batch for task in tasks for batch in reader.read(task)]
        return pa.Table.from_batches(batches) if batches else pa.table({"value": []}), len(tasks)

    return load


@pytest.mark.parametrize(
    ("options", "count", "tasks"),
    [
        ({}, 100, 2),
        ({"startingOffsets": '{"T": {"0": 60, "1": 40}}'}, 0, 1),
        ({"minPartitions": "7"}, 100, 7),
        ({"maxRecordsPerPartition": "9"}, 100, 12),
        ({"startingOffsets": '{"T": {"0": 50}}', "endingOffsets": '{"T": {"1": 5}}'}, 15, 2),
        ({"startingTimestamp": str(BEGIN_MS + 55_500), "endingOffsets": '{"T": {"1": 1}}'}, 5, 2),
        (
            {
                "startingOffsetsByTimestamp": json.dumps({"T": {"1": BEGIN_MS + 98_000}}),
                "endingTimestamp": str(BEGIN_MS + 99_000),
            },
            61,
            2,
        ),
        ({"failOnDataLoss": "false", "endingOffsets": '{"T": {"0": 900}}'}, 100, 2),
    ],
)
def test_a_batch_is_what_its_range_holds(
    table: Callable[..., tuple[pa.Table, int]],
    numbers: str,
    options: dict[str, str],
    count: int,
    tasks: int,
) -> None:
    given = {name: value.replace('"T"', f'"{numbers}"') for name, value in options.items()}
    rows, used = table(subscribe=numbers, **given)
    assert (rows.num_rows, used) == (count, tasks)


def test_topics_are_chosen_by_pattern_and_partitions_one_by_one(
    table: Callable[..., tuple[pa.Table, int]], numbers: str
) -> None:
    rows, _ = table(subscribePattern=f"{numbers[:-1]}[{numbers[-1]}]")
    assert sorted(map(int, rows["value"].to_pylist())) == list(range(100))
    rows, _ = table(assign=json.dumps({numbers: [1]}))
    assert rows["value"].to_pylist() == [b"%d" % number for number in range(60, 100)]


LATE = datetime.datetime.fromtimestamp((BEGIN_MS + 95_000) / 1000, datetime.UTC)


@pytest.mark.parametrize(
    ("filters", "count", "tasks"),
    [
        ([EqualTo(("partition",), 1)], 40, 1),
        ([In(("partition",), (1, 7)), GreaterThanOrEqual(("offset",), 35)], 5, 1),
        ([LessThan(("offset",), 10)], 20, 2),
        ([EqualTo(("topic",), "other")], 0, 1),
        ([GreaterThanOrEqual(("timestamp",), LATE)], 5, 1),
        ([GreaterThan(("timestamp",), LATE), EqualTo(("partition",), 0)], 0, 1),
        ([EqualTo(("timestampType",), 7)], 100, 2),
    ],
)
def test_filters_make_the_ranges_smaller(
    table: Callable[..., tuple[pa.Table, int]],
    numbers: str,
    filters: list[Filter],
    count: int,
    tasks: int,
) -> None:
    rows, used = table(*filters, subscribe=numbers)
    assert (rows.num_rows, used) == (count, tasks)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic'"),
        ({"bootstrap.servers": "127.0.0.1:1", **SHORT}, "cannot reach the cluster"),
        ({"endingOffsets": '{"T": {"0": 900}}'}, "failOnDataLoss=false reads what exists"),
        ({"startingOffsets": '{"T": {"9": 0}}'}, "which the query does not read"),
        ({"startingTimestamp": "9999999999999"}, "has no record at or after"),
        ({"assign": '{"T": [0, 9]}', "subscribe": ""}, "there is no partition topic-"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(
    table: Callable[..., tuple[pa.Table, int]], numbers: str, options: dict[str, str], words: str
) -> None:
    given = {name: value.replace('"T"', f'"{numbers}"') for name, value in options.items()}
    given.setdefault("subscribe", numbers)
    assert words in failure(lambda: table(**given))


def test_deleted_records_are_a_loss_and_gaps_are_none(
    table: Callable[..., tuple[pa.Table, int]], bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    begin = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 2}})}
    options = SourceOptions.parse({"bootstrap.servers": bootstrap, **begin})
    planned = SteleReader(options)
    tasks = planned.partitions()
    with Admin(bootstrap) as admin:
        admin.delete_records({(topic, 0): 4})
    assert "offset 2 is wanted, but the log has 4 to 10" in failure(lambda: table(**begin))
    rows, _ = table(**begin, failOnDataLoss="false")
    assert rows.num_rows == 6
    lost = failure(lambda: list(planned.read(tasks[0])))
    assert "the offsets 2 to 10 should be read, but the log has 4 to 10 now" in lost


def of_range(options: SourceOptions, range_: OffsetRange) -> list[bytes]:
    batches = list(read_range(options, range_))
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_the_tasks_of_a_process_read_with_one_consumer(
    monkeypatch: pytest.MonkeyPatch, bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 2)
            producer.flush()  # a batch of its own
    options = SourceOptions.parse({"bootstrap.servers": bootstrap, "subscribe": topic})
    with Admin(bootstrap) as admin:
        (topic_id,) = (each.topic_id for each in admin.describe_topics([topic]))
    made: list[Consumer] = []

    def noted(given: SourceOptions) -> Consumer:
        made.append(open_consumer(given))
        return made[-1]

    readers = KeptClients(noted, lambda given: given.bootstrap_servers)
    monkeypatch.setattr(reading, "readers", readers)
    assert of_range(options, OffsetRange(topic, 0, 0, 3, topic_id)) == [b"0", b"2", b"4"]
    assert of_range(options, OffsetRange(topic, 1, 1, 5, topic_id)) == [b"3", b"5", b"7", b"9"]
    assert of_range(options, OffsetRange(topic, 0, 3, 4, topic_id)) == [b"6"]
    assert len(made) == 1
    assert made[0].assignment() == []
    monkeypatch.setattr(reading, "_POLL_BYTES", 1)
    monkeypatch.setattr(reading, "_ENOUGH_RECORDS", 1)
    given_up = read_range(options, OffsetRange(topic, 0, 0, 5, topic_id))
    next(given_up)
    given_up.close()  # type: ignore[attr-defined]
    assert of_range(options, OffsetRange(topic, 1, 0, 1, topic_id)) == [b"1"]
    assert len(made) == 2, "a task that ended early leaves no consumer"
    readers.close_idle()


def test_a_topic_that_was_made_again_is_read_with_a_new_consumer(
    monkeypatch: pytest.MonkeyPatch, bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    options = SourceOptions.parse({"bootstrap.servers": bootstrap, "subscribe": topic})
    readers = KeptClients(open_consumer, lambda given: given.bootstrap_servers)
    monkeypatch.setattr(reading, "readers", readers)
    with Admin(bootstrap) as admin:
        for value in (b"old", b"new"):
            (topic_id,) = (each.topic_id for each in admin.describe_topics([topic]))
            with Producer(bootstrap) as producer:
                producer.send(topic, value).result()
            assert of_range(options, OffsetRange(topic, 0, 0, 1, topic_id)) == [value]
            admin.delete_topics([topic])
            admin.create_topics([NewTopic(topic, 1, 1)])
    readers.close_idle()


def test_a_query_reads_only_what_its_filters_leave(
    read: Callable[..., DataFrame], numbers: str
) -> None:
    frame = read(subscribe=numbers).where("partition = 0 and offset >= 50 and offset % 2 = 0")
    assert [bytes(row.value) for row in frame.orderBy("offset").collect()] == [
        b"50", b"52", b"54", b"56", b"58",
    ]  # fmt: skip


def test_errors_reach_the_user_of_spark(read: Callable[..., DataFrame], numbers: str) -> None:
    assert "unknown option 'startingoffset'" in failure(
        lambda: read(subscribe=numbers, startingOffset="earliest").count()
    )


def test_a_python_without_the_package_is_reported(
    spark: SparkSession, read: Callable[..., DataFrame], numbers: str, tmp_path: Path
) -> None:
    """A Python that does not find ``stele``, as on a machine without the wheel."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'stele':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    context = spark.sparkContext
    own, context.pythonExec = context.pythonExec, str(bare)
    try:
        stele.spark.register(spark)
        assert "No module named 'stele'" in failure(lambda: read(subscribe=numbers))
    finally:
        context.pythonExec = own
        stele.spark.register(spark)


def test_a_python_process_of_spark_starts_without_pandas() -> None:
    """Spark starts several for each session, and pandas would double the time of each."""
    code = "import sys, stele.spark; print('pandas' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_a_plain_write_is_read_back(
    spark: SparkSession,
    read: Callable[..., DataFrame],
    bootstrap: str,
    create_topic: Callable[..., str],
) -> None:
    one, other = create_topic(partitions=2), create_topic()
    frame = spark.sql(
        f"""
        select 'k' as key, 'v1' as value, '{one}' as topic, 1 as partition,
               array(named_struct('key', 'h', 'value', binary('x'))) as headers
        union all select null, 'v2', '{other}', null, null
        """
    )
    writer = frame.write.format("stele").option("kafka.bootstrap.servers", bootstrap)
    writer.option("exactlyOnce", "false").mode("append").save()
    (row,) = read(subscribe=one, includeHeaders="true").collect()
    assert (bytes(row.key), bytes(row.value), row.partition) == (b"k", b"v1", 1)
    assert [(each.key, bytes(each.value)) for each in row.headers] == [("h", b"x")]
    (row,) = read(subscribe=other).collect()
    assert (row.key, bytes(row.value)) == (None, b"v2")


VALUES = StructType().add("value", StringType())


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (StructType().add("value", IntegerType()), {}, "is int, not string or binary"),
        (StructType().add("v", StringType()), {}, "the frame has the columns v"),
        (StructType().add("key", StringType()), {}, 'no column "value"'),
        (VALUES, {"topic": ""}, 'neither an option "topic" nor a column "topic"'),
        (
            StructType().add("value", StringType()).add("headers", StringType()),
            {},
            'the column "headers" is string',
        ),
        (VALUES, {"subscribe": "t"}, "unknown option"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is(
    schema: StructType, options: dict[str, str], words: str
) -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "exactlyOnce": "false", "topic": "t", **options}
    for writer in (SteleDataSource(given).writer, SteleDataSource(given).streamWriter):
        assert words in failure(lambda writer=writer: writer(schema, False))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"value": ["a"], "topic": [None]}, {"topic": ""}, "a row has no topic"),
        ({"value": ["a"], "partition": [-1]}, {}, "a row has the partition -1"),
        ({"value": ["a"]}, {"topic": "no-such", "kafka.max.block.ms": "500"}, "no-such"),
    ],
)
def test_rows_that_cannot_be_written_are_named(
    bootstrap: str, columns: dict[str, list[Any]], options: dict[str, str], words: str
) -> None:
    schema = StructType().add("value", StringType())
    if "topic" in columns:
        schema = schema.add("topic", StringType())
    if "partition" in columns:
        schema = schema.add("partition", IntegerType())
    given = {"bootstrap.servers": bootstrap, "exactlyOnce": "false", "topic": "t", **options}
    writer = SteleDataSource(given).writer(schema, overwrite=False)
    batch = pa.record_batch(columns)
    assert words in failure(lambda: writer.write(iter([batch])))


def test_a_topic_is_not_overwritten() -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "exactlyOnce": "false", "topic": "t"}
    schema = StructType().add("value", StringType())
    words = failure(lambda: SteleDataSource(given).writer(schema, overwrite=True))
    assert 'use mode("append")' in words
