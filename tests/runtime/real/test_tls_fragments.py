"""TLS over a network that cuts and joins bytes as it likes, that is full, and that changes them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.real.tls_listener import RealServerTls
from runtime.real.tls_transport import TlsTransport
from tests.support.tls import AUTHORITY, listener
from world.network import Identity


class Inline(Executor):
    """Runs handshakes in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


SERVER = RealServerTls(listener(), Inline())
CLIENT = AUTHORITY.client_context()


class Raw(asyncio.Transport):
    """The transport below TLS. It keeps what is written until the test takes it, and is full above
    the limit that TLS has set."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1)})
        self.sent = bytearray()
        self.protocol: TlsTransport
        self.high = 0
        self.is_full = False
        self.is_paused = False
        self.is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.sent += data
        if len(self.sent) > self.high and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()

    def take(self, count: int) -> bytes:
        taken = bytes(self.sent[:count])
        del self.sent[:count]
        if self.is_full and len(self.sent) <= self.high // 2:
            self.is_full = False
            self.protocol.resume_writing()
        return taken

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True
        self.sent.clear()


class Application(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(700)
        self.received = bytearray()
        self.is_established = self.is_ended = self.is_lost = False
        self.stays = False  # whether it keeps its side open when the peer has ended its own
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def tls_established(self, identity: Identity) -> None:
        self.is_established = True

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.is_established
        self.received += self.buffer[:nbytes]

    def eof_received(self) -> bool:
        self.is_ended = True
        return self.stays

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class Pair:
    """Both ends, and the network between them."""

    def __init__(self, received_bytes: int = 4096) -> None:
        self.application, self.raw = Application(), Raw()
        self.server = TlsTransport(SERVER, self.application, bytearray(received_bytes))
        self.raw.protocol = self.server
        self.server.connection_made(self.raw)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = CLIENT.wrap_bio(self.incoming, self.outgoing, False, "127.0.0.1")
        self.is_shaken = False
        self.received = bytearray()

    def deliver(self, data: bytes) -> int:
        """Give the server the bytes, a buffer at a time, until it pauses reading. Returns how many
        bytes it has taken."""
        taken = 0
        while taken < len(data) and not self.raw.is_closed and not self.raw.is_paused:
            buffer = self.server.get_buffer(-1)
            count = min(len(data) - taken, len(buffer))
            buffer[:count] = data[taken : taken + count]
            taken += count
            self.server.buffer_updated(count)
        return taken

    async def deliver_all(self, data: bytes) -> None:
        """Give the server all bytes. Wait whenever it pauses reading."""
        for _ in range(1000):
            data = data[self.deliver(data) :]
            if not data or self.raw.is_closed:
                return
            await asyncio.sleep(0)
        raise AssertionError("the server reads nothing more")

    def step(self) -> None:
        """Let the client handle the bytes that have arrived."""
        with contextlib.suppress(ssl.SSLWantReadError):
            if not self.is_shaken:
                self.client.do_handshake()
                self.is_shaken = True
            while data := self.client.read(65_536):
                self.received += data


SEEDS = st.integers(0, 2**32)
"""Seeds for what is drawn within a run. The length of a handshake varies, so Hypothesis cannot draw
for each of its pieces."""


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    SEEDS,
    st.integers(1, 20_000),
    st.lists(st.binary(max_size=3000), max_size=6),
    st.lists(st.integers(0, 60_000), max_size=6),
)
def test_bytes_arrive_whole_however_the_network_cuts_them(
    seed: int, cut_bytes: int, questions: list[bytes], sizes: list[int]
) -> None:
    rng = random.Random(seed)
    answers = [rng.randbytes(size) for size in sizes]

    async def run() -> None:
        pair, pending, said, answered = Pair(), bytearray(), list(questions), list(answers)
        for _ in range(100_000):
            pair.step()
            if pair.is_shaken and said:
                pair.client.write(said.pop(0))
            if pair.application.is_established and answered:
                pair.server.writelines([answered.pop(0), b""])
            pending += pair.outgoing.read()
            if pending and not pair.raw.is_paused:
                count = min(rng.randint(1, cut_bytes), len(pending))
                del pending[: pair.deliver(bytes(pending[:count]))]
            if pair.raw.sent:
                pair.incoming.write(pair.raw.take(rng.randint(1, cut_bytes)))
            await asyncio.sleep(0)
            if (
                pair.application.received == b"".join(questions)
                and pair.received == b"".join(answers)
                and pair.is_shaken
            ):
                break
        assert pair.application.received == b"".join(questions)
        assert pair.received == b"".join(answers)
        pair.server.close()
        assert pair.raw.is_closed

    asyncio.run(run())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(SEEDS, st.integers(0, 3))
def test_changed_bytes_end_the_connection_and_reach_no_application(seed: int, flight: int) -> None:
    rng = random.Random(seed)

    async def run() -> None:
        pair = Pair()
        with contextlib.suppress(ssl.SSLError):  # of the client
            for number in range(4):
                pair.step()
                if pair.is_shaken and number == 3:
                    pair.client.write(b"question")
                sent = bytearray(pair.outgoing.read())
                if number == flight and sent:
                    sent[rng.randrange(len(sent))] ^= 1 << rng.randrange(8)
                await pair.deliver_all(bytes(sent))
                for _ in range(5):
                    await asyncio.sleep(0)
                pair.incoming.write(pair.raw.take(len(pair.raw.sent)))
        assert bytes(pair.application.received) in (b"", b"question")
        pair.server.connection_lost(None)
        assert pair.application.is_lost

    asyncio.run(run())


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=5000))
def test_any_first_bytes_are_refused_or_waited_for(first: bytes) -> None:
    async def run() -> None:
        pair = Pair()
        await pair.deliver_all(first)
        for _ in range(5):
            await asyncio.sleep(0)
        assert pair.application.received == b""
        assert not pair.application.is_established
        pair.server.connection_lost(None)
        assert pair.application.is_lost
        # Nothing is left to happen: its deadline is over, too.
        assert pair.server.is_closing()

    asyncio.run(run())
