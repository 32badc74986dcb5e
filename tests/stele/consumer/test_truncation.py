"""A consumer whose records vanish (KIP-320), against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from stele.consumer.consumer import Consumer
from stele.errors import ErrorCode, LogTruncationError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord
from stele.wire.batch import BatchBuilder, stamp
from stele.wire.compression import Compression
from tests.support.stele import FakePartition, Stage, on_stage

T0 = TopicPartition("t", 0)


def append(partition: FakePartition, *values: bytes) -> None:
    builder = BatchBuilder()
    for value in values:
        builder.append(b"k", value, timestamp_ms=1000)
    batch = builder.build(Compression.NONE)
    stamp(batch, 0, base_offset=partition.end_offset, leader_epoch=partition.leader_epoch)
    partition.batches.append(batch)
    partition.end_offset += len(values)


def elect(partition: FakePartition, epoch: int) -> None:
    partition.leader_epoch = epoch


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        polled = await consumer.poll(count - len(records), timeout_ms=5000)
        assert polled, f"only {len(records)} of {count}"
        records += polled
    return [record.value for record in records]


@on_stage
async def test_the_position_goes_back_to_where_the_logs_agree(stage: Stage) -> None:
    told: list[tuple[TopicPartition, int, int]] = []

    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    append(partition, b"b")
    append(partition, b"c")
    async with stage.consumer(
        on_truncation=lambda name, offset, agreed: told.append((name, offset, agreed))
    ) as consumer:
        consumer.assign([T0])
        assert await read(consumer, 3) == [b"a", b"b", b"c"]
        partition.lose(1, leader_epoch=2)
        append(partition, b"x")
        append(partition, b"y")
        append(partition, b"z")
        assert await read(consumer, 3) == [b"x", b"y", b"z"]
        assert told == [(T0, 3, 1)]


@pytest.mark.parametrize("raised", [ValueError("from the user"), SystemExit(1)])
@on_stage
async def test_a_function_of_the_user_that_raises_does_not_stop_the_consumer(
    stage: Stage, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*what: object) -> None:
        raise raised

    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    append(partition, b"b")
    async with stage.consumer(on_truncation=fail, on_wait=fail) as consumer:
        consumer.assign([T0])
        assert await read(consumer, 2) == [b"a", b"b"]
        leader, partition.leader = partition.leader, -1
        await asyncio.sleep(10)  # of virtual time: the consumer says what it waits for
        partition.leader = leader
        partition.lose(1, leader_epoch=2)
        append(partition, b"x")
        assert await read(consumer, 1) == [b"x"]
    assert "on_truncation has failed" in caplog.text
    assert "on_wait has failed" in caplog.text


@on_stage
async def test_earlier_epochs_that_diverge_as_well_are_reported_as_one_truncation(
    stage: Stage,
) -> None:
    """The leader knows epoch 0 up to 1 and epoch 2 up to 5. The reader has epoch 1 from 1 to 3, and
    epoch 3 behind it."""
    told: list[tuple[int, int]] = []

    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    elect(partition, 1)
    append(partition, b"b1", b"b2")
    elect(partition, 3)
    append(partition, b"c")
    async with stage.consumer(
        on_truncation=lambda _, offset, agreed: told.append((offset, agreed))
    ) as consumer:
        consumer.assign([T0])
        await read(consumer, 4)
        partition.lose(1, leader_epoch=2)
        append(partition, b"x1", b"x2", b"x3", b"x4")
        elect(partition, 4)
        assert await read(consumer, 4) == [b"x1", b"x2", b"x3", b"x4"]
        assert told == [(4, 1)]


@on_stage
async def test_without_a_reset_the_truncation_is_an_error_until_a_seek(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    append(partition, b"b")
    async with stage.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek("t", 0, 0)
        await read(consumer, 2)
        partition.lose(1, leader_epoch=1)
        append(partition, b"x")
        for _ in range(2):
            with pytest.raises(LogTruncationError) as caught:
                await consumer.poll(timeout_ms=5000)
            error = caught.value
            assert (error.topic, error.partition) == T0
            assert (error.offset, error.diverging_offset) == (2, 1)
            assert "from 1 to 2" in error.message
        consumer.seek("t", 0, error.diverging_offset)
        assert await read(consumer, 1) == [b"x"]


@on_stage
async def test_records_that_nobody_has_polled_yet_are_fetched_again(stage: Stage) -> None:
    told: list[object] = []

    partition = stage.cluster.create("t").partitions[0]
    for value in (b"a", b"b", b"c"):
        append(partition, value)
    async with stage.consumer(
        auto_offset_reset="none", on_truncation=lambda *what: told.append(what)
    ) as consumer:
        consumer.assign([T0])
        consumer.seek("t", 0, 0)
        assert await read(consumer, 1) == [b"a"]
        partition.lose(1, leader_epoch=1)
        append(partition, b"x")
        await asyncio.sleep(2)  # it goes on fetching, with two records that were not polled
        assert await read(consumer, 1) == [b"x"]
        assert await consumer.position("t", 0) == 2
        assert told == []


@on_stage
async def test_a_stored_epoch_finds_out_that_the_record_before_has_vanished(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    partition.lose(1, leader_epoch=2)
    append(partition, b"x", b"y", b"z")
    async with stage.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek("t", 0, 3, leader_epoch=1)
        with pytest.raises(LogTruncationError) as caught:
            await consumer.poll(timeout_ms=5000)
        assert caught.value.diverging_offset == 1
        consumer.seek("t", 0, 3, leader_epoch=2)
        assert await read(consumer, 1) == [b"z"]


@on_stage
async def test_a_topic_that_is_made_anew_has_no_truncation(stage: Stage) -> None:
    told: list[object] = []

    partition = stage.cluster.create("t").partitions[0]
    elect(partition, 7)
    append(partition, b"a", b"b")
    async with stage.consumer(on_truncation=lambda *what: told.append(what)) as consumer:
        consumer.assign([T0])
        await read(consumer, 2)
        del stage.cluster.topics["t"]
        stage.cluster.create("other")
        anew = stage.cluster.create("t").partitions[0]
        stage.cluster.metadata_offset += 1
        append(anew, b"x", b"y", b"z")
        assert await read(consumer, 3) == [b"x", b"y", b"z"]
        assert told == []


@on_stage
async def test_an_offset_that_retention_took_as_well_is_reset(stage: Stage) -> None:
    told: list[tuple[int, int]] = []

    partition = stage.cluster.create("t").partitions[0]
    for value in (b"a", b"b", b"c"):
        append(partition, value)
    async with stage.consumer(
        on_truncation=lambda _, offset, agreed: told.append((offset, agreed))
    ) as consumer:
        consumer.assign([T0])
        await read(consumer, 3)
        partition.lose(1, leader_epoch=2)
        append(partition, b"x")
        append(partition, b"y")
        partition.start_offset = 2
        assert await read(consumer, 1) == [b"y"]
        assert told == [(3, 1)]


def test_the_error_is_also_out_of_range_which_kafkas_clients_know() -> None:
    assert LogTruncationError("t", 0, 9, 4).code is ErrorCode.OFFSET_OUT_OF_RANGE
