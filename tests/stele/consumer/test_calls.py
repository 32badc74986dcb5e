"""What each call of a consumer promises, against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from stele.cluster.messages import FetchAnswer, FetchRequest, FoundOffset, OffsetQuestion
from stele.consumer.consumer import Consumer
from stele.errors import ConfigError, OffsetOutOfRangeError
from stele.ids import TopicPartition
from tests.stele.consumer.test_truncation import append, read
from tests.support.stele import Stage, on_stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@on_stage
async def test_a_poll_without_time_lets_other_tasks_run(stage: Stage) -> None:
    """A loop of such polls would otherwise keep the records from coming for ever."""
    stage.cluster.create("t")
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        other = asyncio.ensure_future(asyncio.sleep(0))
        assert await consumer.poll(timeout_ms=0) == []
        assert other.done()


@on_stage
async def test_a_paused_partition_keeps_what_was_fetched_of_it(stage: Stage) -> None:
    topic = stage.cluster.create("t", 2)
    for number, partition in topic.partitions.items():
        append(partition, b"%d a" % number, b"%d b" % number)
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        assert await read(consumer, 1) == [b"0 a"]
        consumer.assign([T0, T1])
        consumer.pause(T0, T1)
        assert await consumer.poll(timeout_ms=1000) == []
        consumer.resume(T0)
        assert consumer.paused() == [T1]
        assert await read(consumer, 1) == [b"0 b"]
        assert await consumer.poll(timeout_ms=1000) == []
        consumer.resume()
        assert await read(consumer, 2) == [b"1 a", b"1 b"]


@on_stage
async def test_a_paused_partition_stops_no_other(stage: Stage) -> None:
    topic = stage.cluster.create("t", 2)
    append(topic.partitions[1], b"v")
    async with stage.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0, T1])
        consumer.seek("t", 1, 0)
        with pytest.raises(OffsetOutOfRangeError, match="t-0"):
            await read(consumer, 1)
        consumer.pause(T0)
        assert await read(consumer, 1) == [b"v"]
        consumer.resume(T0)
        with pytest.raises(OffsetOutOfRangeError, match="t-0"):
            await consumer.poll(timeout_ms=1000)


@on_stage
async def test_an_offset_to_seek_is_not_negative(stage: Stage) -> None:
    append(stage.cluster.create("t").partitions[0], b"a", b"b")
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        assert await read(consumer, 2) == [b"a", b"b"]
        with pytest.raises(ConfigError, match="seek_to_end"):
            consumer.seek("t", 0, -1)
        assert consumer.known_position("t", 0) == 2
        consumer.seek("t", 0, 0)
        assert await read(consumer, 2) == [b"a", b"b"]


@on_stage
async def test_without_a_group_unsubscribing_gives_up_all_partitions(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        await consumer.unsubscribe()
        assert consumer.assignment() == []


@on_stage
async def test_nobody_hears_of_records_that_vanished_from_a_partition_given_up(
    stage: Stage,
) -> None:
    """Another member reads it by now. The answer that shows how far to go back was under way."""
    told: list[TopicPartition] = []
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    append(partition, b"b")
    async with stage.consumer(on_truncation=lambda name, *_: told.append(name)) as consumer:
        consumer.assign([T0])
        await read(consumer, 2)
        stage.cluster.stream_answers_take_s = 0.5
        partition.lose(1, leader_epoch=2)
        append(partition, b"x")
        while consumer.known_position("t", 0) == 2:
            await consumer.poll(timeout_ms=10)
        assert not told, "the leader has not confirmed the offset yet"
        await asyncio.sleep(0.1)  # it is asked
        consumer.assign([])
        await asyncio.sleep(5)
        assert not told


@on_stage
async def test_an_answer_of_a_leader_that_was_left_does_not_count(stage: Stage) -> None:
    """The next leader has other records at these offsets."""
    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    append(partition, b"lost")
    fetch = cluster.fetch
    release = asyncio.Event()

    async def held(broker: int, request: FetchRequest) -> list[FetchAnswer]:
        if broker == 1:
            answers = await fetch(broker, request)
            await release.wait()
            return answers
        await asyncio.sleep(1)
        return await fetch(broker, request)

    cluster.fetch = held  # type: ignore[method-assign]
    async with stage.consumer(metadata_max_age_ms=1_000) as consumer:
        consumer.assign([T0])
        consumer.seek("t", 0, 0)
        await consumer.poll(timeout_ms=200)
        partition.batches.clear()
        partition.end_offset = 0
        cluster.move_leader(partition, 2)
        append(partition, b"kept 0", b"kept 1")
        loop = asyncio.get_running_loop()
        while "broker 2 was asked" not in consumer.why()[T0]:
            await consumer.poll(timeout_ms=50)
        release.set()
        began_s = loop.time()
        assert await read(consumer, 2) == [b"kept 0", b"kept 1"]
        assert loop.time() - began_s < 3


@on_stage
async def test_an_offset_is_of_the_topic_that_was_asked_about(stage: Stage) -> None:
    """Another topic has the name when the answer comes. All of its records are new."""
    cluster = stage.cluster
    append(cluster.create("t").partitions[0], b"old 0", b"old 1")
    find = cluster.list_offsets

    def find_and_replace(
        broker: int, wanted: list[OffsetQuestion], *, is_committed: bool
    ) -> list[FoundOffset]:
        answers = find(broker, wanted, is_committed=is_committed)
        cluster.list_offsets = find  # type: ignore[method-assign]
        append(cluster.create("t").partitions[0], b"new 0", b"new 1", b"new 2")
        # This answer comes late, and meanwhile the consumer hears of the new topic.
        cluster.stream_answers_take_s = 3
        asyncio.get_running_loop().call_later(
            0.1, lambda: setattr(cluster, "stream_answers_take_s", 0.001)
        )
        return answers

    async with stage.consumer(auto_offset_reset="latest", metadata_max_age_ms=1_000) as consumer:
        await consumer.partitions_for("t")
        cluster.list_offsets = find_and_replace  # type: ignore[method-assign,assignment]
        consumer.assign([T0])
        assert await read(consumer, 3) == [b"new 0", b"new 1", b"new 2"]


async def test_a_client_has_the_real_world_unless_it_gets_another_one() -> None:
    async with Consumer("127.0.0.1:9"):
        pass
