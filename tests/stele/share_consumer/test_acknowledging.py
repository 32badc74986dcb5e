"""Acknowledgements beside fetches that wait, and beside others that fail."""

from __future__ import annotations

import asyncio

import pytest

from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.stele.share_consumer.test_share_consumer import VALUES, twin_of, values_of
from tests.support.share_twin import ACCEPT, append
from tests.support.stele import Stage, on_stage

NAME = TopicPartition("t", 0)
LONG_MS = 20_000


@on_stage
async def test_an_acknowledgement_does_not_wait_behind_a_fetch(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    options = {"share_acknowledgement_mode": "explicit", "fetch_max_wait_ms": LONG_MS}
    async with stage.share_consumer(**options) as consumer:
        consumer.subscribe(["t"])
        first, *others = await consumer.poll()
        other = asyncio.ensure_future(consumer.poll(timeout_ms=LONG_MS))
        await asyncio.sleep(1)
        async with asyncio.timeout(0.5):
            consumer.acknowledge(first)
            assert await consumer.commit() == {NAME: None}
        for record in others:
            consumer.acknowledge(record)
        async with asyncio.timeout(0.5):
            assert await consumer.commit() == {NAME: None}
        await asyncio.sleep(1)
        append(stage.cluster.partition(), b"d")
        assert values_of(await other) == [b"d"]
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
async def test_a_fetch_waits_long_while_nothing_can_be_acknowledged(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(fetch_max_wait_ms=LONG_MS) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
        await consumer.poll(timeout_ms=10_000)
        fetches = [request for kind, _, request in twin.requests if kind == "fetch"]
        assert len(fetches) <= 4
        assert fetches[2].max_wait_ms == 7500, "a quarter of the lock"


@on_stage
async def test_records_after_a_long_wait_are_returned(stage: Stage) -> None:
    """The consumer counts the lock from when it asked. With a wait above the lock it would drop all
    records that come late, until the broker gives them up."""
    twin = twin_of(stage)
    async with stage.share_consumer(fetch_max_wait_ms=60_000) as consumer:
        consumer.subscribe(["t"])
        other = asyncio.ensure_future(consumer.poll(timeout_ms=60_000))
        await asyncio.sleep(40)
        append(stage.cluster.partition(), b"late")
        (record,) = await other
        assert (record.value, record.delivery_count) == (b"late", 1)
        assert await consumer.commit() == {NAME: None}
    assert twin.outcomes() == {0: ACCEPT}


@on_stage
async def test_closing_sends_the_acknowledgements_that_wait(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    options = {"share_acknowledgement_mode": "explicit", "fetch_max_wait_ms": LONG_MS}
    consumer = stage.share_consumer(**options)
    consumer.subscribe(["t"])
    records = await consumer.poll()
    other = asyncio.ensure_future(consumer.poll(timeout_ms=LONG_MS))
    await asyncio.sleep(1)
    for record in records:
        consumer.acknowledge(record)
    async with asyncio.timeout(1):
        await consumer.close()
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)
    with pytest.raises(Exception, match="closed"):
        await other


@on_stage
async def test_closing_does_not_wait_for_a_fetch(stage: Stage) -> None:
    twin = twin_of(stage)
    consumer = stage.share_consumer(fetch_max_wait_ms=LONG_MS)
    consumer.subscribe(["t"])
    other = asyncio.ensure_future(consumer.poll(timeout_ms=LONG_MS))
    await asyncio.sleep(3)
    async with asyncio.timeout(1):
        await consumer.close()
    assert not twin.members
    with pytest.raises(Exception, match="closed"):
        await other


@on_stage
@pytest.mark.parametrize("closes", [False, True])
async def test_a_lock_that_the_broker_has_ended_takes_no_others_along(
    stage: Stage, closes: bool
) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        for record in await consumer.poll():
            consumer.acknowledge(record)
        twin.entry(1).holder = None
        if not closes:
            results = await consumer.commit()
            error = results[NAME]
            assert error is not None
            assert error.code is ErrorCode.INVALID_RECORD_STATE
            assert twin.outcomes() == {0: ACCEPT, 2: ACCEPT}
    assert twin.outcomes() == {0: ACCEPT, 2: ACCEPT}
