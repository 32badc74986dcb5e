"""The asyncio clients, whose calls are cancelled at any await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.errors import ClosedError, ErrorCode, SteleError
from stele.producer.outcomes import Delivery
from tests.support.stele import Fault, Stage, on_stage
from tests.support.sync_clients import add_records, keep_offsets

TURNS = st.integers(0, 60)
POLLS = st.lists(st.tuples(st.sampled_from(["poll", "seek", "position", "ends"]), TURNS))
SENDS = st.lists(
    st.tuples(st.sampled_from(["send", "wrong", "flush", "refused", "lost", "callback"]), TURNS)
)
FEW = settings(max_examples=60, deadline=None)


async def broken_off(work: Coroutine[Any, Any, Any], turns: int) -> Any:
    """The result, or None if it was cancelled after so many turns of the loop. Turns without
    anything to do let time pass."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0.0005)
        if task.done():
            break
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


@FEW
@given(POLLS, TURNS)
@on_stage
async def test_polls_that_are_cancelled_lose_no_record(
    stage: Stage, actions: list[tuple[str, int]], end: int
) -> None:
    add_records(stage.cluster.create("t").partitions[0], 100)
    consumer = stage.consumer()
    consumer.assign([("t", 0)])
    expected = 0
    for action, turns in actions:
        if action == "poll":
            for record in await broken_off(consumer.poll(7), turns) or ():
                assert record.offset == expected
                expected += 1
        elif action == "seek":
            consumer.seek("t", 0, expected)
        elif action == "position":
            assert await broken_off(consumer.position("t", 0), turns) in (None, expected)
        else:
            await broken_off(consumer.end_offsets([("t", 0)]), turns)
        assert consumer.known_position("t", 0) in (None, expected)
    while expected < 100:
        for record in await consumer.poll(7, timeout_ms=10_000):
            assert record.offset == expected
            expected += 1
    await broken_off(consumer.close(), end)
    await consumer.close()
    with pytest.raises(ClosedError):
        await consumer.poll()


@on_stage
async def test_closing_ends_in_time_if_no_broker_answers(stage: Stage) -> None:
    keep_offsets(stage.cluster, {})
    add_records(stage.cluster.create("t").partitions[0], 10)
    consumer = stage.consumer(group_id="g")
    consumer.assign([("t", 0)])
    assert await consumer.poll(timeout_ms=10_000)
    stage.cluster.frozen.update(stage.cluster.alive)
    begun = stage.cluster.clock.monotonic()
    await consumer.close()
    assert stage.cluster.clock.monotonic() - begun < 20


@FEW
@given(SENDS, TURNS, st.sampled_from(["close", "abort"]))
@on_stage
async def test_calls_of_a_producer_that_are_cancelled_leave_one_outcome_to_each_record(
    stage: Stage, actions: list[tuple[str, int]], turns: int, end: str
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    producer = stage.producer(linger_ms=1)
    sent: list[Delivery] = []
    outcomes: list[int] = []

    def send_another(_: object) -> None:
        with suppress(SteleError):
            producer.send_nowait("t", b"later")

    for action, each in actions:
        if action == "refused":
            partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
        elif action == "lost":
            partition.faults.append(Fault(breaks=True))
        elif action == "flush":
            await broken_off(_tolerated(producer.flush), each)
            continue
        value: Any = "text" if action == "wrong" else b"x"
        delivery = await broken_off(_tolerated(partial(producer.send, "t", value)), each)
        if delivery is not None:
            sent.append(delivery)
            delivery.add_done_callback(lambda done: outcomes.append(id(done)))
        if delivery is not None and action == "callback":
            delivery.add_done_callback(send_another)
    await broken_off(_tolerated(producer.close if end == "close" else producer.abort), turns)
    await producer.abort()
    await asyncio.sleep(0)
    assert sorted(outcomes) == sorted(id(each) for each in sent)
    offsets = [each.result().offset for each in sent if each.exception() is None]
    assert len(set(offsets)) == len(offsets)


async def _tolerated(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    try:
        return await work()
    except SteleError:
        return None
