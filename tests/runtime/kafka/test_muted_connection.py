"""A Kafka connection whose client is above a quota, and what a connection takes of the loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.kafka.loop_share import LoopShare
from stele.wire.kafka.messages import find_coordinator
from tests.support.kafka_server import ANSWER, Handlers, Server, request
from tests.support.worlds import virtual


def taken(server: Server) -> list[int]:
    return [header.correlation_id for header, _, _ in server.handlers.taken]


def muting(seconds: float, correlation_id: int) -> Server:
    """Answers at once, and mutes the connection with the answer to this request."""
    server = Server(Handlers(lambda _: ANSWER))

    def answered(request: Any, message: Any) -> None:
        if request.header.correlation_id == correlation_id:
            server.protocol.mute(seconds)

    server.handlers.answered = answered  # type: ignore[method-assign]
    return server


@virtual
async def test_requests_that_were_received_wait_from_the_answer_on() -> None:
    server = muting(2.0, 1)
    server.feed(b"".join(map(request, range(4))) + request(4)[:10])
    assert server.answers() == [0, 1], "the answer itself is not held back"
    assert server.protocol.muted.is_on
    await asyncio.sleep(1.99)
    assert server.transport.is_paused
    assert server.answers() == [0, 1]
    await asyncio.sleep(0.02)
    assert server.answers() == [0, 1, 2, 3]
    server.feed(request(4)[10:])
    assert server.answers() == [0, 1, 2, 3, 4]


@virtual
async def test_a_decoded_request_whose_turn_comes_waits() -> None:
    server = Server()
    server.handlers.in_turn = {find_coordinator.API.key}
    server.feed(request(0) + request(1))
    assert taken(server) == [0]
    server.protocol.mute(1.0)
    server.handlers.taken[0][2](ANSWER)
    assert server.answers() == [0]
    assert taken(server) == [0]
    await asyncio.sleep(1.01)
    assert taken(server) == [0, 1]


@virtual
async def test_the_longest_time_counts() -> None:
    server = Server()
    server.protocol.mute(3.0)
    server.protocol.mute(1.0)
    await asyncio.sleep(1.5)
    assert server.protocol.muted.is_on
    server.protocol.mute(2.5)
    await asyncio.sleep(2.0)
    assert server.protocol.muted.is_on
    await asyncio.sleep(0.51)
    assert not server.protocol.muted.is_on


@virtual
async def test_a_client_that_has_ended_its_side_gets_all_of_its_answers() -> None:
    server = muting(1.0, 0)
    server.feed(request(0) + request(1))
    assert server.protocol.eof_received()
    assert not server.transport.is_closing()
    await asyncio.sleep(1.01)
    assert server.answers() == [0, 1]
    assert server.transport.is_closing()


@virtual
async def test_a_muted_connection_ends_with_its_broker_and_with_its_peer() -> None:
    server = Server()
    server.protocol.mute(60.0)
    server.protocol.drain()
    assert server.transport.is_closing()
    other = Server()
    other.protocol.mute(60.0)
    other.protocol.connection_lost(None)
    assert not other.protocol.muted.is_on
    other.protocol.mute(1.0)
    assert not other.protocol.muted.is_on


@virtual
async def test_a_connection_was_not_idle_while_it_was_muted() -> None:
    server = Server()
    server.protocol.mute(5.0)
    await asyncio.sleep(5.01)
    assert server.protocol.last_active_s == pytest.approx(asyncio.get_running_loop().time(), abs=1)


class Ticks:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


async def test_two_looks_at_the_clock_measure_a_turn_of_many_requests() -> None:
    handlers = Handlers(lambda _: ANSWER)
    handlers.turn_clock = clock = Ticks()
    server = Server(handlers)
    server.feed(b"".join(map(request, range(10))))
    assert server.answers() == list(range(10))
    assert clock.now_s == 2.0
    assert server.protocol.loop_share.take() == 1.0
    assert server.protocol.loop_share.take() == 0.0


async def test_an_answer_in_a_later_turn_is_measured_too() -> None:
    handlers = Handlers()
    server = Server(handlers)
    server.feed(request(0))
    handlers.turn_clock = clock = Ticks()
    handlers.taken[0][2](ANSWER)
    assert clock.now_s == 2.0
    assert server.protocol.loop_share.take() == 1.0


async def test_each_step_of_a_coroutine_is_measured() -> None:
    share, clock = LoopShare(), Ticks()
    woken = asyncio.Event()

    async def work() -> str:
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await woken.wait()
        return "done"

    assert await share.run_async(clock, work()) == "done"
    assert share.take() == 3.0

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await share.run_async(clock, failing())
    assert share.take() == 2.0


async def test_cancelling_reaches_the_measured_work() -> None:
    share, ended = LoopShare(), []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    task = asyncio.create_task(share.run_async(Ticks(), work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    assert share.take() == 2.0


async def test_a_turn_that_fails_is_measured() -> None:
    share = LoopShare()

    def work() -> None:
        share.add(100.0)  # part of the turn
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        share.run(Ticks(), work)
    assert share.take() == 1.0
