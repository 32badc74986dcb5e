"""A consumer of a topic that is deleted and made anew under its name."""

from __future__ import annotations

import asyncio

import pytest

from stele.errors import OffsetOutOfRangeError
from stele.ids import TopicPartition
from stele.wire.kafka import ZERO_UUID
from tests.stele.consumer.test_truncation import append, read
from tests.support.stele import FakePartition, Stage, on_stage

T0 = TopicPartition("t", 0)


def make(stage: Stage, *values: bytes) -> FakePartition:
    partition = stage.cluster.create("t").partitions[0]
    for value in values:
        append(partition, value)
    return partition


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@on_stage
async def test_it_reads_every_record_of_the_new_topic(stage: Stage, reset: str) -> None:
    make(stage, b"old 0", b"old 1")
    async with stage.consumer(auto_offset_reset=reset, metadata_max_age_ms=1000) as consumer:
        consumer.assign([T0])
        consumer.seek("t", 0, 0)
        assert await read(consumer, 2) == [b"old 0", b"old 1"]
        make(stage, b"new 0", b"new 1", b"new 2")
        assert await read(consumer, 3) == [b"new 0", b"new 1", b"new 2"]


@on_stage
async def test_without_a_reset_it_says_that_it_has_no_position(stage: Stage) -> None:
    make(stage, b"old 0")
    async with stage.consumer(auto_offset_reset="none", metadata_max_age_ms=1000) as consumer:
        consumer.assign([T0])
        consumer.seek("t", 0, 0)
        assert await read(consumer, 1) == [b"old 0"]
        make(stage, b"new 0", b"new 1")
        with pytest.raises(OffsetOutOfRangeError, match="seek"):
            await read(consumer, 1)
        consumer.seek("t", 0, 0)
        assert await read(consumer, 2) == [b"new 0", b"new 1"]


@on_stage
async def test_what_was_fetched_of_the_old_topic_is_still_returned(stage: Stage) -> None:
    make(stage, b"old 0", b"old 1", b"old 2")
    async with stage.consumer(metadata_max_age_ms=1000) as consumer:
        consumer.assign([T0])
        assert await read(consumer, 1) == [b"old 0"]
        make(stage, b"new 0")
        await asyncio.sleep(5)
        assert await read(consumer, 3) == [b"old 1", b"old 2", b"new 0"]


@on_stage
async def test_a_position_that_was_looked_up_in_the_old_topic_is_given_up_as_well(
    stage: Stage,
) -> None:
    make(stage, b"old 0")
    async with stage.consumer(auto_offset_reset="latest", metadata_max_age_ms=1000) as consumer:
        consumer.assign([T0])
        assert await consumer.position("t", 0) == 1
        make(stage, b"new 0", b"new 1")
        assert await read(consumer, 2) == [b"new 0", b"new 1"]


@on_stage
async def test_brokers_that_give_ids_no_more_have_made_no_topic_anew(stage: Stage) -> None:
    """They were brought back to an older version. The consumer reads nothing twice."""
    topic = stage.cluster.create("t")
    append(topic.partitions[0], b"a")
    async with stage.consumer(metadata_max_age_ms=1_000) as consumer:
        consumer.assign([T0])
        assert await read(consumer, 1) == [b"a"]
        topic.topic_id = ZERO_UUID
        assert await consumer.poll(timeout_ms=5_000) == []
        append(topic.partitions[0], b"b")
        assert await read(consumer, 1) == [b"b"]
        assert consumer.topic_id("t") == b""


@on_stage
async def test_a_seek_is_for_whichever_topic_has_the_name(stage: Stage) -> None:
    """Also if this client has not heard of the new topic yet."""

    make(stage, b"old 0", b"old 1", b"old 2")
    async with stage.consumer(metadata_max_age_ms=60_000) as consumer:
        consumer.assign([T0])
        assert await read(consumer, 3) == [b"old 0", b"old 1", b"old 2"]
        make(stage, b"new 0", b"new 1", b"new 2")
        consumer.seek("t", 0, 1)
        assert await read(consumer, 2) == [b"new 1", b"new 2"]
