"""Whole batches from a consumer, against a fake cluster on virtual time."""

from __future__ import annotations

import pytest

from stele.consumer.consumer import Consumer
from stele.errors import ConfigError
from stele.wire.batch import BatchBuilder, decode, stamp
from tests.support.stele import FakePartition, Stage, on_stage


def append(partition: FakePartition, *values: bytes, is_control: bool = False) -> None:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=1000)
    batch = builder.build(is_control=is_control)
    stamp(batch, 0, base_offset=partition.end_offset, leader_epoch=partition.leader_epoch)
    partition.batches.append(batch)
    partition.end_offset += len(values)


async def polled(consumer: Consumer, max_bytes: int = 1_000_000) -> list[tuple[int, bytes | None]]:
    batches = await consumer.poll_batches(max_bytes, timeout_ms=5000)
    return [
        (record.offset, record.value)
        for batch in batches
        for record in decode(batch.data, batch.position)
        if record.offset >= batch.first_offset
    ]


@on_stage
async def test_batches_come_whole_and_move_the_position(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a", b"b")
    append(partition, b"commit", is_control=True)
    append(partition, b"c")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 1)
        assert await polled(consumer) == [(1, b"b"), (3, b"c")]
        assert consumer.known_position("t", 0) == 4
        assert await consumer.poll_batches(timeout_ms=100) == []
        append(partition, b"d")
        assert await consumer.poll(timeout_ms=5000) != []


@on_stage
async def test_one_batch_comes_whatever_its_size_and_later_ones_wait(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a" * 100)
    append(partition, b"b" * 100)
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        assert [offset for offset, _ in await polled(consumer, max_bytes=1)] == [0]
        assert consumer.known_position("t", 0) == 1
        assert [offset for offset, _ in await polled(consumer, max_bytes=1)] == [1]
        consumer.seek("t", 0, 0)
        size = len(partition.batches[0])
        assert [offset for offset, _ in await polled(consumer, max_bytes=size)] == [0]


@on_stage
async def test_a_control_batch_alone_moves_the_position_at_once(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"abort", is_control=True)
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        begun = stage.cluster.clock.monotonic()
        assert await consumer.poll_batches(timeout_ms=60_000) == []
        assert consumer.known_position("t", 0) == 1
        assert stage.cluster.clock.monotonic() - begun < 1


@on_stage
async def test_what_poll_has_decoded_and_not_returned_comes_again(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a", b"b", b"c")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        (first,) = await consumer.poll(1, timeout_ms=5000)
        assert first.value == b"a"
        assert await polled(consumer) == [(1, b"b"), (2, b"c")]


@on_stage
async def test_a_group_hands_out_no_batches(stage: Stage) -> None:
    async with stage.consumer(group_id="g") as consumer:
        with pytest.raises(ConfigError, match="without a group"):
            await consumer.poll_batches()


@on_stage
async def test_a_paused_partition_gives_no_batches(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    append(partition, b"b")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        assert await polled(consumer, max_bytes=1) == [(0, b"a")]
        consumer.pause()
        assert consumer.paused() == [("t", 0)]
        assert await consumer.poll_batches(timeout_ms=100) == []
        consumer.resume()
        assert await polled(consumer) == [(1, b"b")]
