"""Connections that take turns: what waits, what is read, and who is served first.

The clock stands still, so each request costs what it costs at least.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable

from runtime.kafka.turns import (
    ALONE_AFTER_S,
    BURST_ALONE_S,
    BURST_S,
    REQUEST_FLOOR_S,
    TURN_REQUESTS,
    Turns,
)
from stele.wire import kafka
from stele.wire.kafka.frames import CHUNK_BYTES
from stele.wire.kafka.messages import find_coordinator
from tests.support.kafka_server import ANSWER, Handlers, Server, request

BURST = round(BURST_S / REQUEST_FLOOR_S)  # requests
BURST_ALONE = round(BURST_ALONE_S / REQUEST_FLOOR_S)


class StandingClock:
    now_s = 1.0

    def monotonic(self) -> float:
        return self.now_s

    def time_ms(self) -> int:
        return 1_000


class Node:
    """Connections that share their turns and their handlers."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.clock = StandingClock()
        self.turns = Turns(self.clock)
        self.handlers = Handlers((lambda _: ANSWER) if at_once else None)

    def connect(self) -> Server:
        return Server(self.handlers, turns=self.turns)

    def taken(self, client_id: str) -> int:
        return sum(header.client_id == client_id for header, _, _ in self.handlers.taken)

    async def rounds(self, is_enough: Callable[[], bool] | None = None, most: int = 1000) -> int:
        """Let the loop go round until it is enough, or until no connection waits. Returns how often
        it did."""
        is_enough = is_enough or (lambda: not self.turns.waiting)
        for number in range(most):
            if is_enough():
                return number
            await asyncio.sleep(0)
        raise AssertionError(f"{self.turns.waiting} connections wait")


def many(count: int, client_id: str) -> bytes:
    return b"".join(request(number, client_id) for number in range(count))


async def test_a_connection_takes_a_few_requests_at_once_and_the_others_in_turns() -> None:
    node = Node()
    server = node.connect()
    server.feed(many(100, "c"))
    assert node.taken("c") == TURN_REQUESTS
    assert server.transport.is_reading()
    server.feed(request(100, "c"))
    assert not server.transport.is_reading()
    assert await node.rounds() >= (100 - TURN_REQUESTS) // (BURST + TURN_REQUESTS)
    assert node.taken("c") == 101
    assert server.answers() == list(range(101))
    assert server.transport.is_reading()


async def test_a_request_waits_for_one_turn_of_a_client_with_many_connections() -> None:
    node = Node()
    for _ in range(8):
        node.connect().feed(many(60, "greedy"))
    before = node.taken("greedy")
    assert before <= BURST + TURN_REQUESTS
    polite = node.connect()
    polite.feed(request(7, "polite"))
    assert node.taken("polite") == 0
    await asyncio.sleep(0)
    assert node.taken("polite") == 1
    assert polite.answers() == [7]
    order = [header.client_id for header, _, _ in node.handlers.taken[before:]]
    assert order.index("polite") <= BURST + TURN_REQUESTS
    await node.rounds()
    assert node.taken("greedy") == 8 * 60


async def test_a_burst_of_single_requests_is_bounded_whoever_sends_them() -> None:
    node = Node()
    servers = [node.connect() for _ in range(100)]
    for number, server in enumerate(servers):
        server.feed(request(number, f"client-{number}"))
    assert len(node.handlers.taken) == BURST
    assert node.turns.waiting == 100 - BURST
    await asyncio.sleep(0)
    assert len(node.handlers.taken) == 2 * BURST
    await node.rounds()
    assert [server.answers() for server in servers] == [[number] for number in range(100)]


async def test_a_client_id_gets_as_much_as_another_of_the_same_user() -> None:
    node = Node()
    for _ in range(20):
        node.connect().feed(many(60, "greedy"))
    other = node.connect()
    other.feed(many(60, "other"))
    await node.rounds(lambda: node.taken("other") == 60)
    assert node.taken("greedy") <= 60 + 3 * (BURST + TURN_REQUESTS)
    await node.rounds()


async def taken_in_a_round(node: Node) -> int:
    before = len(node.handlers.taken)
    await asyncio.sleep(0)
    return len(node.handlers.taken) - before


async def test_a_connection_that_has_long_been_alone_has_longer_bursts() -> None:
    node = Node()
    server = node.connect()
    server.feed(many(1000, "c"))
    assert BURST <= await taken_in_a_round(node) < BURST + TURN_REQUESTS
    node.clock.now_s += ALONE_AFTER_S - 0.001
    assert BURST <= await taken_in_a_round(node) < BURST + TURN_REQUESTS
    node.clock.now_s += 0.002
    assert BURST_ALONE <= await taken_in_a_round(node) < BURST_ALONE + TURN_REQUESTS
    await node.rounds()


async def test_another_connection_makes_the_bursts_short_again() -> None:
    node = Node()
    node.connect().feed(many(1000, "c"))
    node.clock.now_s += ALONE_AFTER_S
    other = node.connect()
    other.feed(request(1, "other"))
    await asyncio.sleep(0)
    assert other.answers() == [1]
    assert BURST <= await taken_in_a_round(node) < BURST + TURN_REQUESTS
    await node.rounds()


async def test_a_follower_that_fetches_leaves_a_connection_alone() -> None:
    node = Node()
    node.connect().feed(many(1000, "c"))
    node.clock.now_s += ALONE_AFTER_S
    follower = node.connect()
    follower.protocol.is_of_follower = True
    follower.feed(request(1, "follower"))
    await asyncio.sleep(0)
    assert follower.answers() == [1]
    assert BURST_ALONE <= await taken_in_a_round(node) < BURST_ALONE + TURN_REQUESTS
    await node.rounds()


async def test_a_closed_connection_is_not_kept() -> None:
    turns = Turns(StandingClock())
    server = Server(Handlers())
    turns.run(server.protocol)
    turns.leave(server.protocol)
    closed = weakref.ref(server.protocol)
    del server
    gc.collect()
    assert closed() is None


async def test_without_contention_nobody_waits() -> None:
    node = Node()
    server = node.connect()
    for number in range(1000):
        server.feed(request(number))
        assert len(node.handlers.taken) == number + 1
        await asyncio.sleep(0)


async def test_nobody_waits_after_a_burst_that_has_served_all_who_waited() -> None:
    node = Node()
    for number in range(2 * BURST):
        node.connect().feed(request(number, f"client-{number}"))
    assert node.turns.waiting == BURST
    await asyncio.sleep(0)
    assert (len(node.handlers.taken), node.turns.waiting) == (2 * BURST, 0)
    await asyncio.sleep(0)
    node.connect().feed(request(1, "later"))
    assert node.taken("later") == 1


async def test_turns_end_when_all_are_served() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told))
    node = Node()
    node.connect().feed(many(TURN_REQUESTS + 1, "c"))
    await node.rounds()
    await asyncio.sleep(0)
    assert (node.taken("c"), failures) == (TURN_REQUESTS + 1, [])


async def test_half_a_frame_takes_no_turn() -> None:
    node = Node()
    node.connect().feed(many(60, "greedy"))
    assert node.turns.is_contended
    slow = node.connect()
    frame = request(3, "slow")
    slow.feed(frame[:10])
    assert slow.transport.is_reading()
    slow.feed(frame[10:])
    assert node.turns.waiting == 2
    await node.rounds()
    assert slow.answers() == [3]


async def test_one_request_of_a_connection_that_waits_does_not_end_its_reading() -> None:
    node = Node()
    node.connect().feed(many(60, "greedy"))
    polite = node.connect()
    polite.feed(request(3, "polite"))
    assert polite.protocol.awaits_turn
    await node.rounds()
    assert polite.answers() == [3]
    assert polite.transport.pauses == 0


async def test_a_connection_that_waits_with_a_full_chunk_is_not_read() -> None:
    node = Node()
    node.connect().feed(many(60, "greedy"))
    server = node.connect()
    frames = many(CHUNK_BYTES // len(request(0, "c")) + 1, "c")
    assert server.feed(frames[:CHUNK_BYTES]) == CHUNK_BYTES
    assert not server.transport.is_reading()
    await node.rounds()
    server.feed(frames[CHUNK_BYTES:])
    await node.rounds()
    assert server.answers() == list(range(len(frames) // len(request(0, "c"))))


async def test_a_large_frame_arrives_while_others_wait() -> None:
    node = Node(at_once=False)
    for _ in range(30):
        node.connect().feed(many(60, "greedy"))
    large = find_coordinator.FindCoordinatorRequest(key="k" * 30_000)
    frame = b"".join(kafka.encode_request(find_coordinator.API, 2, 5, "large", large))
    server = node.connect()
    assert server.feed(frame, piece=1000) == len(frame)
    await node.rounds()
    assert node.taken("large") == 1


async def test_a_peer_that_sends_no_more_still_gets_all_answers() -> None:
    node = Node()
    server = node.connect()
    server.feed(many(40, "c"))
    assert server.protocol.eof_received()
    assert not server.transport.is_closing()
    await node.rounds()
    assert server.answers() == list(range(40))
    assert server.transport.is_closing()


async def test_a_lost_connection_waits_no_more() -> None:
    node = Node()
    server = node.connect()
    server.feed(many(40, "c"))
    server.transport.close()
    server.protocol.connection_lost(None)
    assert node.turns.waiting == 0
    await asyncio.sleep(0)
    assert node.taken("c") == TURN_REQUESTS


async def test_a_draining_connection_takes_nothing_and_closes() -> None:
    node = Node()
    server = node.connect()
    server.feed(many(40, "c"))
    server.protocol.drain()
    assert server.transport.is_closing()
    await node.rounds()
    assert node.taken("c") == TURN_REQUESTS


async def test_a_muted_connection_takes_nothing_when_its_turn_comes() -> None:
    node = Node()
    server = node.connect()
    server.feed(many(40, "c"))
    server.protocol.mute(0.01)
    await node.rounds()
    assert node.taken("c") == TURN_REQUESTS
    async with asyncio.timeout(10):
        await node.rounds(lambda: not server.protocol.muted.is_on, most=sys.maxsize)
    await node.rounds()
    assert node.taken("c") == 40


async def test_a_refused_frame_closes_the_connection_also_while_others_wait() -> None:
    node = Node()
    node.connect().feed(many(60, "greedy"))
    server = node.connect()
    server.feed((-5).to_bytes(4, "big", signed=True))
    await node.rounds()
    assert server.transport.is_closing()
