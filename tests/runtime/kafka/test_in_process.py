"""Connections without a socket, by protocols that note what they hear."""

from __future__ import annotations

import asyncio
import itertools
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kafka.in_process import TURN_BYTES, InProcessTransport, connect
from tests.support.worlds import virtual


class End(asyncio.BufferedProtocol):
    """Takes at most ``room`` bytes at a time. With ``echoes`` it sends them back."""

    def __init__(self, room: int = 1000, *, echoes: bool = False) -> None:
        self._room = bytearray(room)
        self._echoes = echoes
        self.received = bytearray()
        self.events: list[str] = []
        self.depth = 0
        self.transport: InProcessTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(InProcessTransport, transport)
        self.events.append("made")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._room)

    def buffer_updated(self, nbytes: int) -> None:
        assert not self.depth, "called from within its own call"
        self.depth += 1
        self.received += self._room[:nbytes]
        if self._echoes:
            self.transport.write(bytes(self._room[:nbytes]))
        self.depth -= 1

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


def pair(client: End, server: End) -> None:
    assert connect(client, server, "b1", 9092) is client.transport
    assert server.transport.get_extra_info("peername") == ("b1", 9092)


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@given(st.lists(st.lists(st.binary(max_size=40), max_size=4), max_size=8), st.integers(1, 50))
@virtual
async def test_bytes_arrive_in_order_whatever_the_sizes(
    writes: list[list[bytes]], room: int
) -> None:
    client, server = End(room), End(room, echoes=True)
    pair(client, server)
    for buffers in writes:
        client.transport.writelines(buffers)
        assert not server.depth
    await turns()
    sent = b"".join(map(b"".join, writes))
    assert [bytes(each.received) for each in (server, client)] == [sent, sent]


class Growing(End):
    """Makes room by resizing the buffer that it has given out."""

    def get_buffer(self, sizehint: int) -> memoryview:
        self._room.extend(b"?")
        return memoryview(self._room)


@virtual
async def test_a_protocol_may_resize_its_buffer_between_the_parts_of_a_turn() -> None:
    """As the reader of a large frame does."""
    client, server = End(), Growing(10)
    pair(client, server)
    client.transport.writelines([b"x" * 25] * 4)
    await turns()
    assert bytes(server.received) == b"x" * 100


class Failing(End):
    def buffer_updated(self, nbytes: int) -> None:
        raise RuntimeError("a bug")


@virtual
async def test_a_protocol_that_fails_loses_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    client, server = End(), Failing()
    pair(client, server)
    client.transport.write(b"x")
    await turns()
    assert (client.events, server.events) == (["made", "lost"],) * 2
    assert "a connection within the process ends" in caplog.text


@virtual
async def test_nothing_arrives_within_the_call_that_writes_it() -> None:
    client, server = End(), End()
    pair(client, server)
    client.transport.write(b"a")
    assert server.received == b""
    assert client.transport.get_write_buffer_size() == 1
    await turns()
    assert server.received == b"a"
    assert client.transport.get_write_buffer_size() == 0


@virtual
async def test_a_turn_copies_a_bounded_amount() -> None:
    client, server = End(), End(TURN_BYTES)
    pair(client, server)
    client.transport.write(bytes(3 * TURN_BYTES))
    sizes = []
    for _ in range(6):
        sizes.append(len(server.received))
        await asyncio.sleep(0)
    assert sizes[-1] == 3 * TURN_BYTES
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) <= TURN_BYTES


@virtual
async def test_a_reader_that_pauses_slows_the_writer_down() -> None:
    client, server = End(), End()
    pair(client, server)
    client.transport.set_write_buffer_limits(high=100)
    server.transport.pause_reading()
    assert not server.transport.is_reading()
    client.transport.write(bytes(101))
    await turns()
    assert server.received == b""
    assert client.events == ["made", "pause"]
    server.transport.resume_reading()
    await turns()
    assert len(server.received) == 101
    assert client.events == ["made", "pause", "resume"]


@virtual
async def test_a_close_comes_after_what_was_written() -> None:
    client, server = End(10), End(10)
    pair(client, server)
    server.transport.pause_reading()
    client.transport.write(bytes(100))
    client.transport.close()
    client.transport.write(b"too late")
    await turns()
    assert client.events == ["made", "lost"]
    assert server.events == ["made"]
    server.transport.resume_reading()
    await turns()
    assert len(server.received) == 100
    assert server.events == ["made", "lost"]
    assert server.transport.is_closing()


@pytest.mark.parametrize("who", ["client", "server", "both"])
@virtual
async def test_an_abort_loses_what_was_not_read(who: str) -> None:
    client, server = End(), End()
    pair(client, server)
    for end in (client, server):
        end.transport.pause_reading()
        end.transport.write(b"a")
    if who != "server":
        client.transport.abort()
    if who != "client":
        server.transport.abort()
    await turns()
    assert client.events == server.events == ["made", "lost"]
    assert not client.received + server.received
