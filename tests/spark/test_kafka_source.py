"""Spark's own source and sink for Kafka, unmodified, on a cluster of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("kafka_source")]

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
HEADERS = "array(named_struct('key', 'parity', 'value', cast(cast(id % 2 as string) as binary)))"


@pytest.fixture
def written(spark: SparkSession, bootstrap: str, create_topic: Callable[..., str]) -> str:
    """A topic of two partitions with 100 rows of Spark's own sink."""
    topic = create_topic(partitions=2)
    frame = spark.range(100).selectExpr(
        "cast(id as string) key",
        "if(id % 10 = 0, null, concat('value ', id)) value",
        f"{HEADERS} headers",
    )
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    frame.write.format("kafka").options(**options).mode("append").save()
    return topic


def read(spark: SparkSession, source: str, bootstrap: str, topic: str, **more: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format(source).options(**options, **more).load().select(*COLUMNS)


def rows(frame: DataFrame) -> list[object]:
    return [tuple(row) for row in frame.orderBy("partition", "offset").collect()]


def test_both_sources_read_the_same_rows(spark: SparkSession, bootstrap: str, written: str) -> None:
    found = rows(read(spark, "kafka", bootstrap, written))
    assert len(found) == 100
    assert found == rows(read(spark, "stele", bootstrap, written))
    some = {"startingOffsets": f'{{"{written}": {{"0": 7, "1": -2}}}}'}
    some["endingOffsets"] = f'{{"{written}": {{"0": 9, "1": 3}}}}'
    found = rows(read(spark, "kafka", bootstrap, written, **some))
    assert len(found) == 5
    assert found == rows(read(spark, "stele", bootstrap, written, **some))


def test_a_stream_copies_a_topic_and_goes_on_at_its_checkpoint(
    spark: SparkSession,
    bootstrap: str,
    written: str,
    create_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    copies = create_topic(partitions=3)
    reached = {"kafka.bootstrap.servers": bootstrap}
    given = {**reached, "subscribe": written, "startingOffsets": "earliest"}
    given["maxOffsetsPerTrigger"] = "30"

    def copy() -> None:
        frame = spark.readStream.format("kafka").options(**given).load()
        writer = frame.select("key", "value").writeStream.format("kafka")
        options = {**reached, "topic": copies, "checkpointLocation": str(tmp_path)}
        query = writer.options(**options).trigger(availableNow=True).start()
        query.awaitTermination()

    def pairs(topic: str) -> list[tuple[bytes, bytes | None]]:
        found = read(spark, "stele", bootstrap, topic).select("key", "value").collect()
        return sorted((bytes(key), value and bytes(value)) for key, value in found)

    copy()
    assert pairs(copies) == pairs(written)
    more = spark.createDataFrame([("100", "late")], ["key", "value"])
    more.write.format("kafka").options(**reached, topic=written).mode("append").save()
    copy()
    assert len(pairs(copies)) == 101
    assert pairs(copies) == pairs(written)
