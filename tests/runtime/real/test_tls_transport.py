"""TLS connections over loopback: bytes, flow control, ends, and peers that are no TLS clients."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.real import tls_transport
from runtime.real.network import RealNetwork
from runtime.real.tls_first_bytes import why_not_tls
from runtime.real.tls_listener import RealServerTls
from security.node_identity import node_uri
from stele.addresses import Address, SecurityProtocol
from tests.support.timing import until
from tests.support.tls import AUTHORITY, Authority, listener
from world.network import Identity, IdentityError, ServerTlsSettings


class Sink(asyncio.BufferedProtocol):
    """Takes bytes into a small buffer, and pauses when the test says so."""

    def __init__(self, buffer_bytes: int = 1000) -> None:
        self.buffer = bytearray(buffer_bytes)
        self.received = bytearray()
        self.events: list[str] = []
        self.principal: str | None = None
        self.node_ids: frozenset[int] = frozenset()
        self.transport: asyncio.Transport
        self.pause_after: list[int] = []  # counts of bytes; ascending
        self.is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.events.append("made")

    def tls_established(self, identity: Identity) -> None:
        self.principal = identity.principal
        self.node_ids = identity.node_ids
        self.events.append("established")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport.is_reading()
        self.received += self.buffer[:nbytes]
        if self.pause_after and len(self.received) >= self.pause_after[0]:
            self.pause_after.pop(0)
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.001, self.transport.resume_reading)

    def pause_writing(self) -> None:
        assert not self.is_full
        self.is_full = True

    def resume_writing(self) -> None:
        assert self.is_full
        self.is_full = False

    def eof_received(self) -> bool:
        self.events.append("eof")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Held(Sink):
    """Reads nothing until the test says so."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()


class Server:
    """A listener whose protocols are sinks."""

    def __init__(self, network: RealNetwork, tls: RealServerTls, port: int) -> None:
        self.network, self.tls, self.port = network, tls, port
        self.sinks: list[Sink] = []

    async def sink(self) -> Sink:
        """The sink of the first connection, after its handshake."""
        await until(lambda: bool(self.sinks) and "established" in self.sinks[0].events)
        return self.sinks[0]

    async def open(
        self, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context or AUTHORITY.client_context()
        )


@contextlib.asynccontextmanager
async def serving(
    of: ServerTlsSettings | None = None, sink: Callable[[], Sink] = Sink
) -> AsyncIterator[Server]:
    network = RealNetwork()
    tls = network.server_tls(of or listener())
    assert isinstance(tls, RealServerTls)
    server = Server(network, tls, 0)

    def make() -> Sink:
        server.sinks.append(sink())
        return server.sinks[-1]

    bound = await network.listen(Address("127.0.0.1", 0), make, tls=tls)
    server.port = bound.port
    try:
        yield server
    finally:
        await bound.close()
        await until(lambda: all("lost" in each.events for each in server.sinks))
        await network.stop_serving()


async def test_a_peer_is_counted_before_its_handshake_and_has_bytes_after_it() -> None:
    async with serving() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: len(server.sinks) == 1)
        assert server.sinks[0].events == ["made"]
        assert server.sinks[0].transport.get_extra_info("principal") is None
        assert server.sinks[0].transport.get_extra_info("peername")[0] == "127.0.0.1"
        writer.close()
        _, secure = await server.open()
        secure.write(b"hello")
        await until(lambda: bytes(server.sinks[1].received) == b"hello")
        assert server.sinks[1].events == ["made", "established"]
        transport = server.sinks[1].transport
        assert transport.get_extra_info("tls_version") == "TLSv1.3"
        assert transport.get_extra_info("principal") == "User:ANONYMOUS"
        assert server.tls.handshakes == 1
        secure.close()


async def shake_hands(
    port: int, *, piece_bytes: int
) -> tuple[socket.socket, ssl.SSLObject, ssl.MemoryBIO]:
    """Connect as a client that sends its handshake in pieces. Returns its socket, its TLS, and the
    buffer from which that reads."""
    raw = socket.create_connection(("127.0.0.1", port))
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setblocking(False)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = AUTHORITY.client_context().wrap_bio(incoming, outgoing, False, "127.0.0.1")
    loop, is_done = asyncio.get_running_loop(), False
    while not is_done:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
            is_done = True
        while piece := outgoing.read(piece_bytes):
            await loop.sock_sendall(raw, piece)
            await asyncio.sleep(0)
        if not is_done:
            incoming.write(await loop.sock_recv(raw, 65_536))
    return raw, client, incoming


async def test_small_pieces_share_a_record_and_large_ones_stay_whole() -> None:
    """Each record costs 22 bytes: 1,000 pieces of 10 bytes are 10 kB, not 32 kB."""
    async with serving() as server:
        raw, client, incoming = await shake_hands(server.port, piece_bytes=65_536)
        loop, sink = asyncio.get_running_loop(), await server.sink()
        sink.transport.writelines([b"0123456789"] * 1000)
        came, sizes, plain = bytearray(), list[int](), bytearray()
        while len(plain) < 10_000:
            data = await loop.sock_recv(raw, 65_536)
            came += data
            incoming.write(data)
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    plain += client.read(65_536)
        while came:
            size = struct.unpack_from(">xxxH", came)[0]
            sizes.append(size)
            del came[: 5 + size]
        assert plain == b"0123456789" * 1000
        assert [size for size in sizes if size > 1000] == [10_017]  # beside tickets
        raw.close()


SIZES = st.lists(st.integers(0, 70_000), max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    SIZES,
    SIZES,
    st.lists(st.integers(1, 300_000), max_size=6),
    st.integers(1, 40_000),
    st.sampled_from(["TLSv1.2", "TLSv1.3"]),
)
def test_bytes_in_are_bytes_out_under_any_schedule(
    sent: list[int], answered: list[int], pauses: list[int], buffer_bytes: int, version: str
) -> None:
    async def run() -> None:
        def sink() -> Sink:
            made = Sink(buffer_bytes)
            made.pause_after = sorted(pauses)
            return made

        async with serving(sink=sink) as server:
            context = AUTHORITY.client_context()
            context.maximum_version = {
                "TLSv1.2": ssl.TLSVersion.TLSv1_2,
                "TLSv1.3": ssl.TLSVersion.TLSv1_3,
            }[version]
            reader, writer = await server.open(context)
            there = await server.sink()
            question = b"".join(bytes([n % 256]) * size for n, size in enumerate(sent))
            answer = b"".join(bytes([n % 251]) * size for n, size in enumerate(answered))
            position = 0
            for size in sent:
                writer.write(question[position : position + size])
                position += size
                await writer.drain()
            pieces = [answer[at : at + 777] for at in range(0, len(answer), 777)]
            there.transport.writelines(pieces[: len(pieces) // 2])
            for piece in pieces[len(pieces) // 2 :]:
                there.transport.write(piece)
            assert await asyncio.wait_for(reader.readexactly(len(answer)), 10) == answer
            await until(lambda: len(there.received) == len(question))
            assert there.received == question
            writer.close()
            await until(lambda: "eof" in there.events)

    asyncio.run(run())


async def test_a_slow_reader_pauses_the_writer_and_what_waits_is_counted() -> None:
    async with serving() as server:
        reader, writer = await server.open()
        sink = await server.sink()
        sink.transport.set_write_buffer_limits(high=1_000_000)
        data = b"x" * 20_000_000
        sink.transport.write(data)
        assert sink.is_full
        assert sink.transport.get_write_buffer_size() > 1_000_000
        digest, count = hashlib.sha256(), 0
        while count < len(data):
            piece = await reader.read(1_000_000)
            digest.update(piece)
            count += len(piece)
        assert digest.digest() == hashlib.sha256(data).digest()
        await until(lambda: not sink.is_full)
        assert sink.transport.get_write_buffer_size() == 0
        writer.close()


async def test_a_paused_reader_holds_at_most_a_buffer_and_goes_on() -> None:
    async with serving() as server:
        raw = socket.create_connection(("127.0.0.1", server.port))
        client = await asyncio.to_thread(
            AUTHORITY.client_context().wrap_socket, raw, server_hostname="127.0.0.1"
        )
        sink = await server.sink()
        sink.transport.pause_reading()
        data = b"y" * 30_000_000
        sending = asyncio.ensure_future(asyncio.to_thread(client.sendall, data))
        await asyncio.sleep(0.3)
        assert not sending.done()  # the network is full, and memory is not
        assert sink.received == b""
        sink.transport.resume_reading()
        await sending
        await until(lambda: len(sink.received) == len(data))
        client.close()


async def test_close_sends_what_was_written_and_an_end() -> None:
    async with serving() as server:
        reader, writer = await server.open()
        sink = await server.sink()
        sink.transport.write(b"z" * 3_000_000)
        sink.transport.close()
        sink.transport.write(b"late")
        assert sink.transport.is_closing()
        assert await asyncio.wait_for(reader.read(), 10) == b"z" * 3_000_000
        writer.close()
        await until(lambda: "lost" in sink.events)


async def test_a_peer_that_only_ends_its_side_still_gets_answers() -> None:
    async with serving() as server:
        raw = socket.create_connection(("127.0.0.1", server.port))
        client = await asyncio.to_thread(
            AUTHORITY.client_context().wrap_socket, raw, server_hostname="127.0.0.1"
        )
        sink = await server.sink()
        client.sendall(b"question")
        plain = socket.socket(fileno=socket.dup(client.fileno()))
        plain.shutdown(socket.SHUT_WR)
        await until(lambda: "eof" in sink.events)
        assert sink.received == b"question"
        sink.transport.write(b"answer")
        sink.transport.close()
        assert await asyncio.to_thread(client.recv, 100) == b"answer"
        plain.close()
        client.close()


async def test_abort_loses_what_was_written() -> None:
    async with serving() as server:
        _, writer = await server.open()
        sink = await server.sink()
        sink.transport.abort()
        await until(lambda: "lost" in sink.events)
        assert server.tls.failures == {}
        writer.close()


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (
            b"\x00\x00\x00\x2b\x00\x12\x00\x03",
            (
                "speaks Kafka's protocol in plaintext, and this port expects TLS: set "
                "security.protocol=SSL in the client, or let it connect to a listener of PLAINTEXT"
            ),
        ),
        (b"GET / HTTP/1.1\r\n", "it speaks HTTP"),
        (b"SSH-2.0-x", "its first bytes 53 53 48 2d 32 are not those of TLS"),
        (b"\x16\x02\x00\x00\x00", "its first bytes 16 02"),
    ],
)
async def test_a_peer_without_tls_is_told_apart_and_logged(
    first: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server:
        with caplog.at_level(logging.WARNING):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            port = writer.get_extra_info("sockname")[1]
            writer.write(first)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            await until(lambda: server.tls.failures["not_tls"] == 1)
        assert [record.message for record in caplog.records if said in record.message]
        assert f"TLS of 127.0.0.1:{port} on CLIENTS failed: " in caplog.text
        writer.close()


async def test_many_failures_are_one_line_and_the_next_says_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        with caplog.at_level(logging.WARNING):
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET / HTTP/1.1\r\n")
                writer.close()
            await until(lambda: server.tls.failures["not_tls"] == 20)
        assert len(caplog.messages) < 20


async def test_a_connection_that_only_tries_the_port_is_counted_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        with caplog.at_level(logging.INFO):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.close()
            await until(lambda: server.tls.failures["left"] == 1)
        assert caplog.messages == []


async def test_a_handshake_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_S", 0.1)
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\x16\x03\x01\x00")
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        assert server.tls.failures == {"timeout": 1}
        writer.close()


async def test_a_client_hello_may_come_byte_by_byte() -> None:
    async with serving() as server:
        raw, _, _ = await shake_hands(server.port, piece_bytes=1)
        await server.sink()
        raw.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_required_certificate_gives_the_principal(version: ssl.TLSVersion) -> None:
    shown = list[bytes | None]()

    def principal_of(certificate: bytes | None) -> str:
        shown.append(certificate)
        return "User:somebody"

    asked = listener(client_auth="required", principal_of=principal_of)
    async with serving(asked) as server:
        own = AUTHORITY.key_store("client-1", node_uri(7))
        context = AUTHORITY.client_context(own)
        context.maximum_version = version
        _, writer = await server.open(context)
        sink = await server.sink()
        assert (sink.principal, sink.node_ids) == ("User:somebody", frozenset([7]))
        assert ssl.DER_cert_to_PEM_cert(shown[0] or b"") == own.certificates
        writer.close()
        # The same certificate again: it is not read twice.
        _, writer = await server.open(context)
        await until(lambda: server.tls.handshakes == 2)
        assert len(shown) == 1
        writer.close()


def fail(context: ssl.SSLContext, port: int) -> None:
    """As a client that blocks; asyncio's leaves without the alert that says why."""
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        contextlib.suppress(OSError),
        context.wrap_socket(raw, server_hostname="127.0.0.1") as client,
    ):
        client.recv(1)


@pytest.mark.parametrize(
    ("client", "said", "kind"),
    [
        (
            AUTHORITY.client_context(),
            "it showed no certificate, and ssl.client.auth",
            "certificate",
        ),
        (
            AUTHORITY.client_context(Authority("another").key_store("x")),
            "its certificate is not accepted: unable to get local issuer certificate",
            "certificate",
        ),
        (ssl.create_default_context(), "it does not trust the authority of this", "tls"),
    ],
)
async def test_why_a_client_fails_is_logged_and_counted(
    client: ssl.SSLContext, said: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(listener(client_auth="required")) as server:
        with caplog.at_level(logging.WARNING):
            await asyncio.to_thread(fail, client, server.port)
            await until(lambda: server.tls.failures[kind] == 1)
        assert said in caplog.text
        assert server.sinks[0].principal is None
        assert server.sinks[0].received == b""


async def test_a_requested_certificate_may_be_missing() -> None:
    seen = list[bytes | None]()

    def principal_of(certificate: bytes | None) -> str:
        seen.append(certificate)
        return "User:x"

    async with serving(listener(client_auth="requested", principal_of=principal_of)) as server:
        _, writer = await server.open()
        await server.sink()
        assert seen == [None]
        writer.close()


async def test_a_certificate_without_identity_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    def principal_of(certificate: bytes | None) -> str:
        raise IdentityError("no rule matches")

    async with serving(listener(principal_of=principal_of)) as server:
        with caplog.at_level(logging.WARNING), contextlib.suppress(OSError):
            reader, writer = await server.open()
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        await until(lambda: server.tls.failures["identity"] == 1)
        assert "no rule matches" in caplog.text


async def test_a_changed_byte_ends_the_connection() -> None:
    async with serving() as server:
        raw = socket.create_connection(("127.0.0.1", server.port))
        client = await asyncio.to_thread(
            AUTHORITY.client_context().wrap_socket, raw, server_hostname="127.0.0.1"
        )
        sink = await server.sink()
        plain = socket.socket(fileno=socket.dup(client.fileno()))
        plain.setblocking(True)
        plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        await until(lambda: "lost" in sink.events)
        assert server.tls.failures == {"tls": 1}
        assert sink.received == b""
        plain.close()
        client.close()


async def test_a_refused_connection_makes_no_handshake() -> None:
    class Refusing(Sink):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.close()

    async with serving(sink=Refusing) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        await until(lambda: "lost" in server.sinks[0].events)
        assert server.tls.failures == {}
        writer.close()


def test_a_sasl_listener_names_its_own_protocols() -> None:
    said = why_not_tls(b"\x00\x00", SecurityProtocol.SASL_SSL.value)
    assert "set security.protocol=SASL_SSL in the client" in said
    assert said.endswith("a listener of SASL_PLAINTEXT")


async def test_aborted_handshakes_leave_nothing() -> None:
    async with serving() as server:

        def hello() -> bytes:
            client = AUTHORITY.client_context().wrap_bio(
                ssl.MemoryBIO(), (outgoing := ssl.MemoryBIO()), False, "127.0.0.1"
            )
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            return outgoing.read()

        data = hello()
        for size in (1, 5, 60, len(data)):
            for _ in range(40):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(data[:size])
                writer.transport.abort()
        await until(lambda: all("lost" in each.events for each in server.sinks))
        server.sinks.clear()
        # A listener looks through its connections when it has 64 or twice as many as were open.
        await until(lambda: len(_alive(gc.get_objects())) <= 64)


def _alive(objects: list[object]) -> list[object]:
    return [each for each in objects if isinstance(each, tls_transport.TlsTransport)]


async def test_a_connection_that_is_held_from_its_beginning_shakes_hands_when_it_is_let_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_S", 0.05)
    async with serving(sink=Held) as server:
        opening = asyncio.ensure_future(server.open())
        await until(lambda: len(server.sinks) == 1)
        await asyncio.sleep(0.15)  # longer than a handshake may take
        assert server.sinks[0].events == ["made"]
        assert not opening.done()
        monkeypatch.setattr(tls_transport, "HANDSHAKE_S", 10.0)
        server.sinks[0].transport.resume_reading()
        _, writer = await opening
        writer.write(b"hello")
        await until(lambda: bytes(server.sinks[0].received) == b"hello")
        writer.close()


async def test_the_time_of_a_handshake_begins_when_a_held_connection_is_let_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_S", 0.05)
    async with serving(sink=Held) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: len(server.sinks) == 1)
        server.sinks[0].transport.resume_reading()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert dict(server.tls.failures) == {"timeout": 1}
        writer.close()
