"""Which connections are read when memory is short, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from runtime.kafka import connection_memory
from runtime.kafka.connection_memory import FREE_SHARE_BYTES, SMALL_BYTES, ConnectionMemory
from stele.wire import kafka
from stele.wire.kafka import SLICE_ELEMENTS
from stele.wire.kafka.messages import produce
from tests.support.kafka_server import ANSWER, Handlers, Server, request


class Holder:
    def __init__(self, on_freed: Callable[[], None] = lambda: None, *, gives: bool = False) -> None:
        self.on_freed = on_freed
        self.gives = gives
        self.freed = 0
        self.gave = 0
        self.asked = asyncio.Event()

    def memory_freed(self) -> None:
        self.freed += 1
        self.on_freed()

    def give_way(self) -> bool:
        self.gave += self.gives
        self.asked.set()
        return self.gives


async def test_waiters_are_called_in_order_while_there_is_memory() -> None:
    memory = ConnectionMemory(100)
    memory.change(120)
    first = Holder(lambda: memory.change(60))
    second, third = Holder(), Holder()
    for holder in (first, second, third):
        memory.wait(holder)
    memory.leave(third)
    memory.change(-60)  # 60 of 100; the first takes it all again
    await asyncio.sleep(0)
    assert (first.freed, second.freed, memory.waiting) == (1, 0, 1)
    memory.change(-100)
    await asyncio.sleep(0)
    assert (first.freed, second.freed, third.freed, memory.waiting) == (1, 1, 0, 0)


async def test_the_next_answer_takes_a_part_of_what_is_left() -> None:
    memory = ConnectionMemory(100)
    assert memory.answer_share() == 25
    memory.change(96)
    assert memory.answer_share() == 1
    memory.change(100)
    assert memory.answer_share() == 0
    assert ConnectionMemory(-1).answer_share() > 1 << 40


async def test_half_received_requests_give_way_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_memory, "PATIENCE_S", 0.01)
    memory = ConnectionMemory(100)
    memory.change(150)
    busy, stuck, behind = Holder(), Holder(gives=True), Holder(gives=True)
    for holder in (busy, stuck, behind):
        memory.wait(holder)
    await stuck.asked.wait()
    assert (busy.gave, stuck.gave, behind.gave) == (0, 1, 0)
    for holder in (busy, stuck, behind):
        memory.leave(holder)
    assert memory.waiting == 0


# ------------------------------------------------------------------------------ connections


def servers(memory: ConnectionMemory) -> tuple[Server, Server]:
    return Server(memory=memory), Server(memory=memory)


async def test_a_connection_that_holds_little_is_read_from_whatever_others_hold() -> None:
    memory = ConnectionMemory(FREE_SHARE_BYTES)
    greedy, modest = servers(memory)
    greedy.transport.unsent_bytes = 3 * FREE_SHARE_BYTES
    greedy.protocol.pause_writing()
    assert memory.is_short
    modest.feed(request(1))
    assert len(modest.handlers.taken) == 1
    greedy.protocol.connection_lost(None)
    modest.handlers.taken[0][2](ANSWER)
    assert memory.held_bytes == 0


def produced(size: int) -> bytes:
    """A Produce request with so many bytes of records."""
    partition = produce.PartitionProduceData(0, bytearray(size))
    topics = [produce.TopicProduceData("t", partition_data=[partition])]
    message = produce.ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics)
    return b"".join(kafka.encode_request(produce.API, 9, 1, None, message))


async def test_a_connection_that_holds_little_counts_as_one_that_holds_nothing() -> None:
    memory = ConnectionMemory(-1)
    server = Server(memory=memory)
    size = 1000
    most = (SMALL_BYTES - 1) // (len(produced(size)) - kafka.SIZE_BYTES)
    for _ in range(most):
        server.feed(produced(size))
    assert memory.held_bytes == 0
    server.feed(produced(size))
    assert memory.held_bytes == (most + 1) * (len(produced(size)) - kafka.SIZE_BYTES)
    for _, _, respond in server.handlers.taken[: most + 1]:
        respond(produce.ProduceResponse())
    assert memory.held_bytes == 0


async def test_small_requests_that_come_at_once_count_when_the_turn_is_over() -> None:
    memory = ConnectionMemory(-1)
    server = Server(memory=memory)
    frame = produced(1000)
    server.feed(frame * 20)
    assert memory.held_bytes == 20 * (len(frame) - kafka.SIZE_BYTES)
    server.protocol.connection_lost(None)
    assert memory.held_bytes == 0


async def test_a_large_request_counts_before_it_is_handled() -> None:
    memory = ConnectionMemory(-1)
    handlers = Handlers()
    server = Server(handlers, memory=memory)
    frame = produced(SMALL_BYTES)
    seen: list[int] = []

    def answer(_: object) -> kafka.Struct:
        seen.append(memory.held_bytes)
        return produce.ProduceResponse()

    handlers.at_once = answer
    server.feed(frame)
    assert seen == [len(frame) - kafka.SIZE_BYTES]
    assert memory.held_bytes == 0


async def test_what_encryption_holds_counts_also_if_it_is_little() -> None:
    memory = ConnectionMemory(-1)
    server = Server(memory=memory, tls_memory_bytes=100)
    server.feed(request(1))
    assert memory.held_bytes == 100
    server.handlers.taken[0][2](ANSWER)
    assert memory.held_bytes == 100


async def test_one_that_holds_much_waits_until_others_give_back() -> None:
    memory = ConnectionMemory(FREE_SHARE_BYTES)
    first, second = servers(memory)
    first.transport.unsent_bytes = 2 * FREE_SHARE_BYTES
    first.protocol.pause_writing()
    second.handlers.at_once = None
    memory_of = kafka.memory_of_request(10, len(request(0)))
    for number in range(FREE_SHARE_BYTES // memory_of + 2):
        second.feed(request(number))
    taken = len(second.handlers.taken)
    assert second.transport.is_paused or taken == 64
    if second.transport.is_paused:
        for _, _, respond in list(second.handlers.taken):
            respond(ANSWER)
        assert not second.transport.is_paused
    first.protocol.resume_writing()
    await asyncio.sleep(0)
    assert memory.waiting == 0
    assert not second.transport.is_paused


async def test_requests_that_take_turns_begin_when_the_one_before_is_written() -> None:
    handlers = Handlers()
    handlers.in_turn = {10}
    server = Server(handlers)
    server.feed(b"".join(map(request, range(4))))
    assert [header.correlation_id for header, _, _ in handlers.taken] == [0]
    handlers.taken[0][2](ANSWER)
    assert [header.correlation_id for header, _, _ in handlers.taken] == [0, 1]
    # Written and not taken by the peer: the next would add to it.
    server.protocol.pause_writing()
    handlers.taken[1][2](ANSWER)
    assert len(handlers.taken) == 2
    server.protocol.resume_writing()
    assert len(handlers.taken) == 3
    handlers.taken[2][2](ANSWER)
    handlers.taken[3][2](ANSWER)
    assert server.answers() == [0, 1, 2, 3]


async def test_a_turn_lasts_until_the_answer_is_written_not_until_it_is_there() -> None:
    """Otherwise answers would pile up behind the one that is waited for."""
    handlers = Handlers()
    server = Server(handlers)
    server.feed(request(0))  # this request takes no turns
    handlers.in_turn = {10}
    server.feed(request(1) + request(2))
    handlers.taken[1][2](ANSWER)
    assert len(handlers.taken) == 2
    handlers.taken[0][2](ANSWER)
    assert [header.correlation_id for header, _, _ in handlers.taken] == [0, 1, 2]


async def test_a_draining_connection_still_answers_requests_that_wait_for_their_turn() -> None:
    handlers = Handlers()
    handlers.in_turn = {10}
    server = Server(handlers)
    server.feed(request(0) + request(1) + request(2))
    server.protocol.drain()
    handlers.taken[0][2](ANSWER)
    handlers.taken[1][2](ANSWER)
    assert server.answers() == [0, 1]
    assert server.transport.closing


async def test_the_partitions_of_a_produce_request_count_if_they_are_many() -> None:
    """Each takes much more memory than bytes of the frame."""
    for count, is_counted in ((SLICE_ELEMENTS - 1, False), (SLICE_ELEMENTS, True)):
        memory = ConnectionMemory(-1)
        server = Server(Handlers(), memory=memory)
        partitions = [produce.PartitionProduceData(number) for number in range(count)]
        partitions[0].records = bytearray(SMALL_BYTES)
        topics = [produce.TopicProduceData("t", partition_data=partitions)]
        message = produce.ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics)
        frame = b"".join(kafka.encode_request(produce.API, 9, 1, None, message))
        server.feed(frame)
        await server.handlers.wait_for(1)
        size = len(frame) - kafka.SIZE_BYTES
        more = kafka.memory_of_elements(size) if is_counted else 0
        assert memory.held_bytes == kafka.memory_of_request(0, size) + more
        server.handlers.taken[0][2](produce.ProduceResponse())
        assert memory.held_bytes == 0
