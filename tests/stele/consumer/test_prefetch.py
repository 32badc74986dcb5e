"""How far a consumer fetches ahead of its polls."""

from __future__ import annotations

import asyncio

import pytest

from stele.cluster.messages import FetchAnswer, FetchRequest
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
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
async def test_prefetch_is_bounded_over_all_brokers(stage: Stage) -> None:
    """Each answer alone may bring what there is room for, and one batch in any case."""
    partitions = stage.cluster.create("t", 3).partitions.values()
    assert {each.leader for each in partitions} == {1, 2, 3}
    for partition in partitions:
        for _ in range(20):
            append(partition, b"x" * 1000)
    size = len(partition.batches[0])
    fetched = noted_fetches(stage)
    async with stage.consumer(prefetch_bytes=6 * size) as consumer:
        consumer.assign([("t", number) for number in range(3)])
        polled = len(await consumer.poll(1))
        await asyncio.sleep(5)
        most = (6 + 3) * size
        assert sum(fetched) - polled * size <= most
        for _ in range(10):
            polled += len(await consumer.poll(2))
            await asyncio.sleep(1)
            assert sum(fetched) - polled * size <= most
        assert len(await read(consumer, 60 - polled)) == 60 - polled


@on_stage
async def test_a_partition_is_read_though_others_hold_all_room(stage: Stage) -> None:
    """One is paused, and its broker holds back the request for another one."""
    topic = stage.cluster.create("t", 3)
    for number, leader in enumerate([1, 2, 2]):
        topic.partitions[number].leader = leader
    for _ in range(3):
        append(topic.partitions[1], b"x" * 1000)
    size = len(topic.partitions[1].batches[0])
    async with stage.consumer(prefetch_bytes=2 * size) as consumer:
        consumer.assign([("t", 2), ("t", 1)])
        assert len(await consumer.poll(1)) == 1
        consumer.pause(("t", 1))
        consumer.assign([("t", 2), ("t", 1), ("t", 0)])
        for _ in range(3):
            append(topic.partitions[0], b"x" * 1000)
        assert {each.partition for each in await read(consumer, 3)} == {0}


@on_stage
async def test_a_broker_without_news_keeps_no_room_from_the_others(stage: Stage) -> None:
    partitions = stage.cluster.create("t", 3).partitions
    for _ in range(20):
        append(partitions[2], b"x" * 1000)
    size = len(partitions[2].batches[0])
    options = {"prefetch_bytes": 3 * size, "fetch_max_wait_ms": 30_000}
    async with stage.consumer(**options) as consumer:
        consumer.assign([("t", number) for number in range(3)])
        began = stage.cluster.clock.monotonic()
        assert len(await read(consumer, 20)) == 20
        assert stage.cluster.clock.monotonic() - began < 2


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


@on_stage
async def test_a_range_that_is_read_alone_is_fetched_ahead_up_to_all_room(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    stage.cluster.create("u")
    for _ in range(20):
        append(partition, b"x" * 1000)
    size = len(partition.batches[0])
    fetched = noted_fetches(stage)
    options = {"max_partition_fetch_bytes": 2 * size, "prefetch_bytes": 7 * size}
    async with stage.consumer(**options) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        consumer.fetch_until("t", 0, 20)
        assert len(await consumer.poll_batches(2 * size)) == 2
        await asyncio.sleep(5)
        assert fetched == [2 * size] * 4 + [size], "seven batches wait, as many as may"
        assert len(await read(consumer, 18)) == 18
        assert sum(fetched) == 20 * size
        consumer.assign([("t", 0), ("u", 0)])
        consumer.seek("t", 0, 0)
        fetched.clear()
        assert len(await consumer.poll_batches(2 * size)) == 2
        await asyncio.sleep(5)
        assert [each for each in fetched if each] == [2 * size] * 2, "others need room, too"


@pytest.mark.parametrize("way", ["objects", "batches"])
@on_stage
async def test_an_error_of_a_fetch_ahead_comes_after_the_records_before_it(
    stage: Stage, way: str
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for number in range(5):
        append(partition, b"%d" % number)
    fetch = stage.cluster.fetch

    async def refused_from_the_fourth_on(broker: int, request: FetchRequest) -> list[FetchAnswer]:
        answers = await fetch(broker, request)
        if request.partitions[0].fetch_offset >= 3:
            answers[0].code, answers[0].records = ErrorCode.TOPIC_AUTHORIZATION_FAILED, b""
        return answers

    stage.cluster.fetch = refused_from_the_fourth_on  # type: ignore[method-assign]
    async with stage.consumer(max_partition_fetch_bytes=1) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        consumer.fetch_until("t", 0, 5)
        await consumer.poll(1)
        await asyncio.sleep(5)
        for offset in (1, 2):
            if way == "objects":
                assert [each.offset for each in await consumer.poll(1)] == [offset]
            else:
                (batch,) = await consumer.poll_batches(1)
                assert batch.header.base_offset == offset
        for _ in range(2):
            with pytest.raises(ApiError, match="may not READ the topic"):
                await consumer.poll_batches(1)


@on_stage
async def test_nothing_is_fetched_beyond_the_end_that_is_set(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for _ in range(6):
        append(partition, b"x")
    size = len(partition.batches[0])
    fetched = noted_fetches(stage)
    async with stage.consumer(max_partition_fetch_bytes=1) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        consumer.fetch_until("t", 0, 4)
        assert len(await read(consumer, 4)) == 4
        await asyncio.sleep(5)
        assert fetched == [size] * 4, "and no fetch waits for more"
        assert "the end that fetch_until() has set" in consumer.why()[TopicPartition("t", 0)]
        consumer.seek("t", 0, 3)
        assert len(await read(consumer, 1)) == 1
        await asyncio.sleep(5)
        assert fetched == [size] * 5, "a seek leaves the end"
        consumer.fetch_until("t", 0, 5)
        assert len(await read(consumer, 1)) == 1
        consumer.assign([])
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        assert len(await read(consumer, 6)) == 6, "an assignment begins without an end"
