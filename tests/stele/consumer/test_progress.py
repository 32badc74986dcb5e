"""The progress that a consumer tells with a poll, against a fake cluster on virtual time."""

from __future__ import annotations

import struct
from unittest.mock import Mock

import pytest

from stele.cluster.leader_requests import PartitionRetry
from stele.consumer.consumer import Consumer
from stele.consumer.positions import PartitionPosition, Progress
from stele.ids import TopicPartition
from stele.wire.batch import BatchBuilder, stamp
from tests.support.stele import FakePartition, Stage, play

NAME = TopicPartition("t", 0)
LAST_OFFSET_DELTA_AT = 23


def append(
    partition: FakePartition, *values: bytes, is_control: bool = False, gone: int = 0
) -> None:
    """A batch of these values. ``gone`` records at its end were removed by compaction."""
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=1000)
    batch = builder.build(is_control=is_control)
    stamp(batch, 0, base_offset=partition.end_offset, leader_epoch=partition.leader_epoch)
    offsets = len(values) + gone
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_AT, offsets - 1)
    partition.batches.append(batch)
    partition.end_offset += offsets


async def polled(consumer: Consumer, limit: int = 100) -> tuple[list[int], tuple[int, int] | None]:
    """The offsets of the records, and the progress of the partition."""
    records, moved = await consumer.poll_progress(limit, timeout_ms=10_000)
    progress = moved.get(NAME)
    told = None if progress is None else (progress.position, progress.end_offset)
    return [each.offset for each in records], told


@pytest.mark.usefixtures("either_plane")
def test_a_position_that_moves_without_records_is_told_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.cluster.create("t").partitions[0]
        append(partition, b"a", b"b")
        async with stage.consumer() as consumer:
            consumer.assign([NAME])
            consumer.seek(*NAME, 0)
            assert await polled(consumer, 1) == ([0], (1, 2))
            assert await polled(consumer, 1) == ([1], (2, 2))
            assert await polled(consumer) == ([], None), "nothing new"
            append(partition, b"marker", is_control=True)
            began = stage.cluster.clock.monotonic()
            assert await polled(consumer) == ([], (3, 3))
            assert stage.cluster.clock.monotonic() - began < 1

    play(scenario)


@pytest.mark.usefixtures("either_plane")
def test_the_position_skips_what_compaction_has_removed_at_the_end_of_a_batch() -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.cluster.create("t").partitions[0]
        append(partition, b"a", b"b", gone=3)
        async with stage.consumer(check_crcs=False) as consumer:
            consumer.assign([NAME])
            consumer.seek(*NAME, 0)
            assert await polled(consumer, 1) == ([0], (1, 5))
            assert await polled(consumer, 1) == ([1], (5, 5))

    play(scenario)


@pytest.mark.usefixtures("either_plane")
def test_an_empty_partition_is_known_to_be_at_its_end() -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.consumer() as consumer:
            consumer.assign([NAME])
            consumer.seek(*NAME, 0)
            assert await polled(consumer) == ([], (0, 0))
            assert await polled(consumer) == ([], None)

    play(scenario)


def test_an_end_is_news_only_where_the_position_is_at_it() -> None:
    position = PartitionPosition(NAME, Mock(spec=PartitionRetry))
    position.seek(5)

    def told(end_offset: int) -> Progress | None:
        position.high_watermark, position.last_stable_offset = end_offset, end_offset - 1
        return position.take_progress(is_committed=False)

    assert position.take_progress(is_committed=False) is None, "the end is not known"
    assert told(7) is None, "who has sought knows the position"
    assert told(5) == (5, 5, b"")
    assert told(5) is None
    assert told(4) is None, "a new leader does not know yet what is committed"
    assert told(6) is None
    position.seek(5, topic_id=b"another")
    assert position.take_progress(is_committed=False) is None, "the end of another topic"
    assert told(5) == (5, 5, b"another")


def test_the_end_for_readers_of_committed_records_is_the_last_stable_offset() -> None:
    position = PartitionPosition(NAME, Mock(spec=PartitionRetry))
    position.seek(5)
    position.high_watermark, position.last_stable_offset = 8, 5
    assert position.take_progress(is_committed=True) == (5, 5, b"")
