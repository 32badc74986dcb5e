"""The progress that a consumer tells with a poll, against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.messages import FetchAnswer, FetchRequest
from stele.consumer.consumer import Consumer
from stele.consumer.positions import PartitionPosition, Progress
from stele.ids import TopicPartition
from stele.wire.batch import BatchBuilder, PartialBatchError, stamp
from tests.support.stele import FakePartition, Stage, on_stage

NAME = TopicPartition("t", 0)
LAST_OFFSET_DELTA_AT = 23


def batch_at(
    offset: int, values: Sequence[bytes], *, is_control: bool = False, gone: int = 0
) -> bytearray:
    """A batch of these values. ``gone`` records at its end were removed by compaction."""
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=1000)
    batch = builder.build(is_control=is_control)
    stamp(batch, 0, base_offset=offset, leader_epoch=0)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_AT, len(values) + gone - 1)
    return batch


def append(
    partition: FakePartition, *values: bytes, is_control: bool = False, gone: int = 0
) -> None:
    batch = batch_at(partition.end_offset, values, is_control=is_control, gone=gone)
    partition.batches.append(batch)
    partition.end_offset += len(values) + gone


async def polled(
    consumer: Consumer, max_bytes: int = 10_000
) -> tuple[list[int], tuple[int, int] | None]:
    """The offsets of the records, and the progress of the partition."""
    taken, moved = await consumer.poll_batches_progress(max_bytes, timeout_ms=10_000)
    records = [record for batch in taken for record in batch.decode(check_crcs=False)]
    progress = moved.get(NAME)
    told = None if progress is None else (progress.position, progress.end_offset)
    return [each.offset for each in records], told


@on_stage
async def test_a_position_that_moves_without_records_is_reported_at_once(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for value in (b"a", b"b"):
        append(partition, value)
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


@on_stage
async def test_the_position_skips_what_compaction_has_removed_at_the_end_of_a_batch(
    stage: Stage,
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a", b"b", gone=3)
    async with stage.consumer(check_crcs=False) as consumer:
        consumer.assign([NAME])
        consumer.seek(*NAME, 0)
        assert await polled(consumer, 1) == ([0, 1], (5, 5))


@on_stage
async def test_an_empty_partition_is_known_to_be_at_its_end(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.consumer() as consumer:
        consumer.assign([NAME])
        consumer.seek(*NAME, 0)
        began = stage.cluster.clock.monotonic()
        assert await polled(consumer) == ([], (0, 0))
        assert stage.cluster.clock.monotonic() - began < 0.9, "at once"
        assert await polled(consumer) == ([], None)


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


def test_who_has_no_position_has_no_progress() -> None:
    position = PartitionPosition(NAME, Mock(spec=PartitionRetry))
    position.high_watermark = 7
    assert position.take_progress(is_committed=False) is None


def test_the_end_for_readers_of_committed_records_is_the_last_stable_offset() -> None:
    position = PartitionPosition(NAME, Mock(spec=PartitionRetry))
    position.seek(5)
    position.high_watermark, position.last_stable_offset = 8, 5
    assert position.take_progress(is_committed=True) == (5, 5, b"")


def test_what_is_no_whole_batch_is_refused() -> None:
    position = PartitionPosition(NAME, Mock(spec=PartitionRetry))
    position.seek(0)
    data = batch_at(0, [b"v"])
    with pytest.raises(PartialBatchError):
        position.take_fetched(data[:-1])
    assert not position.has_buffer
    position.take_fetched(b"")
    position.take_fetched(data + data[:-1])
    assert position.fetch_offset == 1


BATCHES = st.builds(
    lambda records, is_control, gone: (1 if is_control else records, is_control, gone),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 3),
)
"""How many records, whether it is a marker, and how many records at the end are gone."""


@given(st.lists(st.lists(BATCHES, max_size=4), max_size=6), st.data())
def test_whoever_hears_records_and_progress_knows_when_everything_is_read(
    answers: list[list[tuple[int, bool, int]]], data: st.DataObject
) -> None:
    """Each answer has some batches, and is read in polls of any size."""
    position = PartitionPosition(NAME, Mock(spec=PartitionRetry))
    position.seek(0)
    end = heard = 0
    found: list[int] = []
    there: list[int] = []
    for answer in answers:
        fetched = bytearray()
        for records, is_control, gone in answer:
            fetched += batch_at(end, [b"v"] * records, is_control=is_control, gone=gone)
            there += [] if is_control else range(end, end + records)
            end += records + gone
        position.high_watermark = end
        position.take_fetched(fetched)
        for _ in range(data.draw(st.integers(0, 3))):
            heard = hear(position, data.draw(st.integers(1, 5)), heard, found)
    while position.has_buffer:
        heard = hear(position, 3, heard, found)
    heard = hear(position, 3, heard, found)
    assert (found, heard) == (there, end)
    assert position.take_progress(is_committed=False) is None


def hear(position: PartitionPosition, limit: int, heard: int, found: list[int]) -> int:
    """Poll once. ``heard``: the position that the reader knows of; returns what it is then."""
    for record in position.hand_out(limit, check_crcs=False):
        assert record.offset >= heard
        found.append(record.offset)
        heard = record.offset + 1
    progress = position.take_progress(is_committed=False)
    if progress is not None:
        assert heard <= progress.position <= progress.end_offset == position.high_watermark
        heard = progress.position
    return heard


@on_stage
async def test_a_batch_that_begins_before_the_position_gives_the_records_from_there_on(
    stage: Stage,
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a", b"b", b"c")
    async with stage.consumer() as consumer:
        consumer.assign([NAME])
        consumer.seek(*NAME, 1)
        assert await polled(consumer) == ([1, 2], (3, 3))


@on_stage
async def test_records_come_although_a_new_leader_does_not_know_yet_that_they_are_committed(
    stage: Stage,
) -> None:
    """There is no progress to tell then."""
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    append(partition, b"b")
    fetch = stage.cluster.fetch

    async def ignorant(broker: int, request: FetchRequest) -> list[FetchAnswer]:
        return [replace(each, high_watermark=0) for each in await fetch(broker, request)]

    async with stage.consumer() as consumer:
        consumer.assign([NAME])
        consumer.seek(*NAME, 0)
        assert await polled(consumer, 1) == ([0], (1, 2))
        stage.cluster.fetch = ignorant  # type: ignore[method-assign]
        await asyncio.sleep(5)
        assert await polled(consumer, 1) == ([1], None)
