"""Records that wait in the consumer, when it hears that they are not its own any more."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.stele.share_consumer.test_share_consumer import VALUES, twin_of, values_of
from tests.stele.share_consumer.test_trouble import code_of_commit, polled
from tests.support.share_twin import ACCEPT, append
from tests.support.stele import Stage, on_stage

NAME = TopicPartition("t", 0)
OPTIONS: Final = {"share_acknowledgement_mode": "explicit", "metadata_max_age_ms": 1000}


@on_stage
async def test_records_of_a_former_leader_are_dropped(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(**OPTIONS) as consumer:
        consumer.subscribe(["t"])
        (first,) = await consumer.poll(1)
        stage.cluster.move_leader(stage.cluster.partition(), 2)
        await asyncio.sleep(3)
        assert not consumer.holds(first)
        again = await polled(consumer, 3)
        assert values_of(again) == VALUES
        for record in again:
            consumer.acknowledge(record)
        assert await code_of_commit(consumer) is ErrorCode.NONE
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)
    assert twin.requests[-1][0] == "heartbeat"


@on_stage
async def test_records_of_a_leader_that_came_back_are_dropped(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(**OPTIONS) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(1)
        stage.cluster.move_leader(stage.cluster.partition(), 2)
        stage.cluster.move_leader(stage.cluster.partition(), 1)
        await asyncio.sleep(3)
        again = await polled(consumer, 3)
        assert values_of(again) == VALUES
        for record in again:
            consumer.acknowledge(record)
        assert await code_of_commit(consumer) is ErrorCode.NONE
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
async def test_records_of_a_partition_without_a_leader_are_kept(stage: Stage) -> None:
    twin_of(stage, *VALUES)
    async with stage.share_consumer(**OPTIONS) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(1)
        stage.cluster.partition().leader = -1
        await asyncio.sleep(3)
        assert values_of(await consumer.poll()) == VALUES[1:]


@on_stage
async def test_records_of_a_topic_that_was_made_anew_are_dropped(stage: Stage) -> None:
    twin_of(stage, *VALUES)
    async with stage.share_consumer(**OPTIONS) as consumer:
        consumer.subscribe(["t"])
        (first,) = await consumer.poll(1)
        del stage.cluster.topics["t"]
        stage.cluster.create("other")
        stage.cluster.create("t")
        append(stage.cluster.partition(), b"new")
        stage.cluster.metadata_offset += 1
        await asyncio.sleep(5)
        assert not consumer.holds(first)
        assert values_of(await polled(consumer, 1)) == [b"new"]


@on_stage
async def test_records_after_the_end_of_their_lock_are_dropped(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES, lock_s=2.0)
    async with stage.share_consumer(max_poll_interval_ms=1) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(1)
        await asyncio.sleep(2.5)
        again = await polled(consumer, 3)
        assert [each.delivery_count for each in again] == [2, 2, 2]
        assert await consumer.commit() is not None
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
@pytest.mark.parametrize("lets_go", [False, True])
async def test_records_of_a_topic_that_is_not_subscribed_to_are_released(
    stage: Stage, lets_go: bool
) -> None:
    twin = twin_of(stage, *VALUES)
    stage.cluster.create("u")
    append(stage.cluster.partition("u"), b"of u")
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (first,) = await consumer.poll(1)
        consumer.subscribe(["u"])
        assert values_of(await polled(consumer, 1)) == [b"of u"]
        assert consumer.holds(first)
        assert twin.entry(1).holder is None
        if lets_go:
            consumer.acknowledge(first)
            assert await consumer.commit() == {NAME: None}
