"""Streams that are read and written, with a real cluster and a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from stele import Admin, NewTopic, Producer
from stele.errors import UnreachableError
from stele.ids import TopicPartition
from stele.spark.offsets import DataLossError
from stele.spark.option_error import OptionError
from stele.spark.options import SourceOptions
from stele.spark.source import SteleDataSource, register
from stele.spark.stream import SteleStreamReader
from stele.spark.stream_offsets import CheckpointError, StreamOffsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.processes


def fill(bootstrap: str, topic: str, *values: int, partition: int = 0) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=partition)


@pytest.fixture
def reader(bootstrap: str) -> Iterator[Callable[..., SteleStreamReader]]:
    """Stream readers as Spark's driver keeps them, without Spark."""
    made: list[SteleStreamReader] = []

    def make(**options: str) -> SteleStreamReader:
        given = {"bootstrap.servers": bootstrap, "startingOffsets": "earliest", **options}
        made.append(SteleStreamReader(SourceOptions.parse(given, is_stream=True)))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def values_of(reader: SteleStreamReader, partitions: list[InputPartition]) -> list[int]:
    return [
        int(value)
        for partition in partitions
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]


def test_batches_follow_the_limit_and_new_partitions_are_found(
    reader: Callable[..., SteleStreamReader], bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, *range(10))
    stream = reader(subscribe=topic, maxOffsetsPerTrigger="7")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(7)
    begin = stream.initialOffset()
    first = stream.latestOffset(begin, limit)
    assert values_of(stream, stream.partitions(begin, first)) == [*range(7)]
    with Admin(bootstrap) as admin:
        admin.create_partitions({topic: 2})
    second = stream.latestOffset(first, ReadAllAvailable())
    assert values_of(stream, stream.partitions(first, second)) == [7, 8, 9]
    fill(bootstrap, topic, 77, partition=1)
    third = stream.latestOffset(second, limit)
    assert values_of(stream, stream.partitions(second, third)) == [77]
    assert stream.latestOffset(third, limit) == third
    assert stream.reportLatestOffset() == third


def test_available_now_reads_no_further_than_the_ends_at_its_start(
    reader: Callable[..., SteleStreamReader], bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 1, 2, 3)
    stream = reader(subscribe=topic)
    begin = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    fill(bootstrap, topic, 4, 5)
    end = stream.latestOffset(begin, ReadAllAvailable())
    assert values_of(stream, stream.partitions(begin, end)) == [1, 2, 3]
    assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_a_topic_made_again_is_reported_also_in_the_task(
    reader: Callable[..., SteleStreamReader], bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 1, 2, 3)
    stream = reader(subscribe=topic)
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, ReadAllAvailable())
    planned = stream.partitions(begin, end)
    with Admin(bootstrap) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 1, 3)])
    fill(bootstrap, topic, 7, 8, 9)
    with pytest.raises(DataLossError, match="deleted and created again"):
        stream.latestOffset(end, ReadAllAvailable())
    with pytest.raises(DataLossError, match="deleted and created again"):
        values_of(stream, planned)
    brave = reader(subscribe=topic, failOnDataLoss="false")
    anew = brave.latestOffset(end, ReadAllAvailable())
    after = brave.latestOffset(anew, ReadAllAvailable())
    assert values_of(brave, brave.partitions(anew, after)) == [7, 8, 9]


def test_a_deleted_topic_ends_the_query_only_with_fail_on_data_loss(
    reader: Callable[..., SteleStreamReader], bootstrap: str, create_topic: Callable[..., str]
) -> None:
    stays, goes = create_topic(), create_topic()
    fill(bootstrap, goes, 1)
    ways = [
        {"subscribe": f"{stays},{goes}"},
        {"assign": json.dumps({stays: [0], goes: [0]})},
        {"subscribePattern": f"{stays}|{goes}"},
    ]
    begins = [reader(**way).initialOffset() for way in ways]
    careful = reader(subscribe=goes)
    begin = careful.initialOffset()
    planned = careful.partitions(begin, careful.latestOffset(begin, ReadAllAvailable()))
    with Admin(bootstrap) as admin:
        admin.delete_topics([goes])
    fill(bootstrap, stays, 7)
    for way, begin in zip(ways, begins, strict=True):
        with pytest.raises(DataLossError, match="failOnDataLoss=false goes on"):
            reader(**way).latestOffset(begin, ReadAllAvailable())
        brave = reader(failOnDataLoss="false", **way)
        end = brave.latestOffset(begin, ReadAllAvailable())
        assert values_of(brave, brave.partitions(begin, end)) == [7]
        assert brave.reportLatestOffset() == end
    soon = {"kafka.default.api.timeout.ms": "1000"}
    with pytest.raises(DataLossError, match="was deleted before the query had read it"):
        values_of(reader(subscribe=goes, **soon), planned)
    brave = reader(subscribe=goes, failOnDataLoss="false", **soon)
    assert values_of(brave, planned) == []


def test_a_query_goes_on_when_all_its_topics_were_deleted_and_reads_what_comes_anew(
    reader: Callable[..., SteleStreamReader], bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 1)
    begin = reader(subscribe=topic).initialOffset()
    with Admin(bootstrap) as admin:
        admin.delete_topics([topic])
    brave = reader(subscribe=topic, failOnDataLoss="false")
    end = brave.latestOffset(begin, ReadAllAvailable())
    assert end == {"topics": {}}
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 3)])
    fill(bootstrap, topic, 2)
    found = brave.latestOffset(end, ReadAllAvailable())
    last = brave.latestOffset(found, ReadAllAvailable())
    assert values_of(brave, brave.partitions(found, last)) == [2]


def test_topics_that_vanish_and_checkpoints_of_others_are_reported(
    reader: Callable[..., SteleStreamReader], create_topic: Callable[..., str]
) -> None:
    one, other = create_topic(), create_topic()
    begin = reader(subscribe=one).initialOffset()
    with pytest.raises(CheckpointError, match=f"is of the topics {one}, but the query reads"):
        reader(subscribe=other).latestOffset(begin, ReadAllAvailable())
    with pytest.raises(DataLossError, match="there is no topic 'no-such'"):
        reader(subscribe="no-such").latestOffset(begin, ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "version", "words"),
    [
        ({"subscribe": ""}, "4.3.0", 'one of the options "subscribe"'),
        ({"startingOffsets": '{"t": {"0": 1.5}}'}, "4.3.0", "1.5 of t-0 is no whole number"),
        ({}, "4.1.1", "need PySpark 4.2 or later, and this is 4.1.1"),
    ],
)
def test_a_stream_that_cannot_begin_says_why_when_it_is_asked(
    options: dict[str, str], version: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``streamReader`` raises would be hidden by PySpark."""
    monkeypatch.setattr("pyspark.__version__", version)
    given = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **options}
    refused: Any = SteleDataSource(given).streamReader(StructType())
    for ask in (refused.initialOffset, refused.latestOffset, refused.prepareForTriggerAvailableNow):
        with pytest.raises((OptionError, ImportError), match=words):
            ask()
    refused.stop()


def test_spark_shows_why_a_stream_cannot_begin(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("stele").option("bootstrap.servers", "127.0.0.1:1").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException, match='one of the options "subscribe"'):
        writer.start().awaitTermination()


def test_a_pyspark_without_filters_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.0.1")
    with pytest.raises(ImportError, match=r"stele.spark needs PySpark 4.1 or later"):
        register(spark)


def test_an_unreachable_cluster_ends_the_query_in_time(
    reader: Callable[..., SteleStreamReader],
) -> None:
    away = {"bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1000"}
    with pytest.raises(UnreachableError, match="cannot reach the cluster"):
        reader(subscribe="t", **away).initialOffset()


def test_a_query_of_spark_stops_with_what_is_wrong(
    spark: SparkSession, bootstrap: str, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Its topic was made again between two runs, and its checkpoint is given to another query."""
    topic, other = create_topic(), create_topic()
    fill(bootstrap, topic, 1, 2, 3)
    fill(bootstrap, other, 1)

    def run(name: str) -> None:
        stream = spark.readStream.format("stele").option("kafka.bootstrap.servers", bootstrap)
        rows = stream.options(subscribe=name, startingOffsets="earliest").load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    run(topic)
    with Admin(bootstrap) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 1, 3)])
    fill(bootstrap, topic, 4, 5, 6, 7)
    with pytest.raises(
        StreamingQueryException, match="was deleted and created again since the last"
    ):
        run(topic)
    with pytest.raises(StreamingQueryException, match=f"is of the topics {topic}, but the query"):
        run(other)


def test_the_group_shows_how_far_the_query_is(
    reader: Callable[..., SteleStreamReader], bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 1, 2, 3)
    stream = reader(subscribe=topic, **{"kafka.group.id": f"of-{topic}"})
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    stream.commit(end)
    with Admin(bootstrap) as admin:
        committed = admin.list_group_offsets(f"of-{topic}")
    assert committed[TopicPartition(topic, 0)].offset == 3


def test_a_stream_copies_a_topic_over_restarts(
    spark: SparkSession, bootstrap: str, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = create_topic(partitions=2), create_topic()

    def run() -> None:
        stream = spark.readStream.format("stele").option("kafka.bootstrap.servers", bootstrap)
        stream = stream.options(subscribe=source, startingOffsets="earliest")
        writer = (
            stream.option("maxOffsetsPerTrigger", "8")
            .load()
            .selectExpr("key", "value")
            .writeStream.format("stele")
            .option("kafka.bootstrap.servers", bootstrap)
            .options(topic=target, exactlyOnce="false", checkpointLocation=str(tmp_path))
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    def copied() -> list[int]:
        frame = spark.read.format("stele").option("bootstrap.servers", bootstrap)
        rows = frame.option("subscribe", target).load().collect()
        return sorted(int(row.value) for row in rows)

    fill(bootstrap, source, *range(10))
    fill(bootstrap, source, 100, partition=1)
    run()
    fill(bootstrap, source, 11, 12)
    run()
    assert copied() == [*range(10), 11, 12, 100]
    (entry,) = [each for each in tmp_path.joinpath("offsets").iterdir() if each.name == "0"]
    saved = entry.read_text().splitlines()[-1]
    assert StreamOffsets.from_json(json.loads(saved)).topic_ids[source]
