"""Calls that name partitions: they touch these, and no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stele.aio import Consumer
from stele.cluster.messages import FoundOffset, OffsetQuestion
from stele.records import ConsumerRecord
from tests.support.stele import Stage, on_stage

ZERO, ONE = ("t", 0), ("t", 1)


async def written(stage: Stage) -> None:
    """Two records in each of two partitions."""
    stage.cluster.create("t", 2)
    async with stage.producer() as producer:
        for number in range(4):
            await producer.send("t", b"%d" % number, partition=number % 2)


async def places(consumer: Consumer) -> list[tuple[int, int]]:
    """Partition and offset of all records that still come."""
    found: list[ConsumerRecord] = []
    while polled := await consumer.poll(timeout_ms=2_000):
        found += polled
    return sorted((each.partition, each.offset) for each in found)


@pytest.mark.parametrize(
    ("call", "left"),
    [
        (lambda consumer: consumer.seek_to_end(ZERO), [(1, 0), (1, 1)]),
        (lambda consumer: consumer.seek_to_end(), []),
        (lambda consumer: consumer.pause(ZERO), [(1, 0), (1, 1)]),
        (lambda consumer: consumer.pause(), []),
        (lambda consumer: consumer.seek("t", 1, 1), [(0, 0), (0, 1), (1, 1)]),
    ],
)
@on_stage
async def test_before_a_record_was_read(
    stage: Stage, call: Callable[[Consumer], None], left: list[tuple[int, int]]
) -> None:
    await written(stage)
    async with stage.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([ZERO, ONE])
        call(consumer)
        assert await places(consumer) == left


@pytest.mark.parametrize(
    ("call", "again"),
    [
        (lambda consumer: consumer.seek_to_beginning(ONE), [(1, 0), (1, 1)]),
        (lambda consumer: consumer.seek_to_beginning(), [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (lambda consumer: consumer.put_back({ZERO: 1, ("gone", 0): 0}), [(0, 1)]),
    ],
)
@on_stage
async def test_after_all_records_were_read(
    stage: Stage, call: Callable[[Consumer], None], again: list[tuple[int, int]]
) -> None:
    await written(stage)
    async with stage.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([ZERO, ONE])
        assert len(await places(consumer)) == 4
        call(consumer)
        assert await places(consumer) == again
        assert [await consumer.position(*each) for each in (ZERO, ONE)] == [2, 2]


@on_stage
async def test_a_seek_outlasts_the_answer_about_the_offset_to_begin_at(stage: Stage) -> None:
    await written(stage)
    find = stage.cluster.list_offsets
    async with stage.consumer(auto_offset_reset="earliest") as consumer:

        def find_late(
            broker: int, wanted: Sequence[OffsetQuestion], *, is_committed: bool
        ) -> list[FoundOffset]:
            consumer.seek(*ZERO, 1)
            return find(broker, wanted, is_committed=is_committed)

        stage.cluster.list_offsets = find_late  # type: ignore[method-assign]
        consumer.assign([ZERO])
        assert await places(consumer) == [(0, 1)]


@on_stage
async def test_a_partition_given_up_while_its_offset_is_asked_for_stays_given_up(
    stage: Stage,
) -> None:
    await written(stage)
    find = stage.cluster.list_offsets
    async with stage.consumer(auto_offset_reset="earliest") as consumer:

        def find_late(
            broker: int, wanted: Sequence[OffsetQuestion], *, is_committed: bool
        ) -> list[FoundOffset]:
            consumer.assign([ONE])
            consumer.assign([ONE, ZERO])
            consumer.seek(*ZERO, 1)
            return find(broker, wanted, is_committed=is_committed)

        stage.cluster.list_offsets = find_late  # type: ignore[method-assign]
        consumer.assign([ZERO])
        assert await places(consumer) == [(0, 1), (1, 0), (1, 1)]
