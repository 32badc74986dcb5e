"""How far a consumer fetches ahead of its polls."""

from __future__ import annotations

import asyncio

from stele.cluster.messages import FetchAnswer, FetchRequest
from tests.stele.consumer.test_consumer import append, read
from tests.support.stele import Stage, on_stage


def noted_fetches(stage: Stage) -> list[int]:
    """The bytes of each partition in each answer."""
    fetch = stage.cluster.fetch
    fetched: list[int] = []

    async def noted(broker: int, request: FetchRequest) -> list[FetchAnswer]:
        answers = await fetch(broker, request)
        fetched.extend(len(part.records) for part in answers)
        return answers

    stage.cluster.fetch = noted  # type: ignore[method-assign]
    return fetched


@on_stage
async def test_prefetch_is_bounded(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for _ in range(100):
        append(partition, b"x" * 1000)
    fetched = noted_fetches(stage)
    async with stage.consumer(prefetch_bytes=10_000, max_partition_fetch_bytes=4_000) as consumer:
        consumer.assign([("t", 0)])
        await consumer.poll(1)
        await asyncio.sleep(5)
        waiting_bytes = sum(fetched) - len(partition.batches[0])
        assert 0 < waiting_bytes <= 14_000
        assert len(await read(consumer, 99)) == 99


@on_stage
async def test_prefetch_is_bounded_over_all_partitions(stage: Stage) -> None:
    partitions = stage.cluster.create("t", 3).partitions.values()
    for partition in partitions:
        partition.leader = 1
        append(partition, b"x" * 1000)
        append(partition, b"x" * 1000)
    size = len(partition.batches[0])
    fetched = noted_fetches(stage)
    options = {"prefetch_bytes": 4 * size, "max_partition_fetch_bytes": 4 * size}
    async with stage.consumer(**options) as consumer:
        consumer.assign([("t", number) for number in range(3)])
        await consumer.poll(1)
        await asyncio.sleep(5)
        before = len(fetched)
        for partition in partitions:
            append(partition, b"x" * 1000)
        await asyncio.sleep(5)
        assert len(fetched) == before, "no partition has all its own room, and there is none left"
        assert len(await read(consumer, 8)) == 8


@on_stage
async def test_a_partition_is_fetched_ahead_up_to_its_own_limit(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for _ in range(9):
        append(partition, b"x" * 1000)
    limit = len(partition.batches[0])
    fetched = noted_fetches(stage)
    async with stage.consumer(max_partition_fetch_bytes=limit) as consumer:
        consumer.assign([("t", 0)])
        await consumer.poll(1)
        await asyncio.sleep(5)
        assert fetched == [limit, limit], "one was handed out, the next one waits"
