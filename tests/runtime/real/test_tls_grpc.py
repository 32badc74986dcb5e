"""gRPC over TLS: the caller's principal, exchanged certificates, and what gRPC cannot do."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509

import runtime.real.grpc_server
import stele.grpc_channel
from runtime.real.network import RealNetwork
from runtime.real.tls_listener import RealServerTls
from runtime.real.tls_transport import HANDSHAKE_S
from security.distinguished_name import subject_of
from security.node_identity import node_uri
from stele.addresses import Address, SecurityProtocol
from stele.errors import ConfigError
from stele.grpc_channel import RealChannel
from stele.security.client_security import ClientSecurity, Store, TlsSettings
from stele.world import RpcCode, RpcError, Stream
from tests.support.tls import AUTHORITY, Authority, in_files, listener, overwrite
from world.network import IdentityError, Peer, ServerTlsSettings, Service

WHO = "/stele.v1.Test/Who"
TALK = "/stele.v1.Test/Talk"
DAY = datetime.timedelta(days=1)


def principal_of(certificate: bytes | None) -> str:
    if certificate is None:
        return "User:ANONYMOUS"
    subject = subject_of(certificate)
    if subject == "CN=nobody":
        raise IdentityError("no rule matches 'CN=nobody'")
    return f"User:{subject}"


@contextlib.asynccontextmanager
async def serving(of: ServerTlsSettings) -> AsyncIterator[tuple[int, list[Peer], RealServerTls]]:
    network, peers = RealNetwork(), list[Peer]()

    async def who(payload: bytes, peer: Peer) -> bytes:
        peers.append(peer)
        return payload

    async def talk(stream: Stream, peer: Peer) -> None:
        peers.append(peer)
        while (message := await stream.receive()) is not None:
            await stream.send(message)

    tls = cast(RealServerTls, network.server_tls(of))
    bound = await network.serve(Address("127.0.0.1", 0), Service({WHO: who}, {TALK: talk}), tls=tls)
    try:
        yield bound.port, peers, tls
    finally:
        await bound.close()
        await network.stop_serving()


async def call(port: int, security: ClientSecurity) -> None:
    channel = RealChannel(Address("127.0.0.1", port), "me", security)
    try:
        await channel.call(WHO, b"x", timeout_s=5)
    finally:
        await channel.close()


async def test_a_certificate_gives_the_principal_and_the_node() -> None:
    asked = listener(client_auth="required", principal_of=principal_of)
    async with serving(asked) as (port, peers, _):
        own = AUTHORITY.key_store("localhost", node_uri(7), common_name="node-7")
        await call(port, AUTHORITY.client(own))
        await call(port, AUTHORITY.client(AUTHORITY.key_store("a", common_name="app")))
        assert peers == [
            Peer("127.0.0.1", "me", "User:CN=node-7", frozenset([7])),
            Peer("127.0.0.1", "me", "User:CN=app"),
        ]


async def test_a_stream_has_the_callers_principal() -> None:
    asked = listener(client_auth="required", principal_of=principal_of)
    async with serving(asked) as (port, peers, _):
        own = AUTHORITY.key_store("a", common_name="app")
        channel = RealChannel(Address("127.0.0.1", port), None, AUTHORITY.client(own))
        stream = channel.stream(TALK)
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        await stream.close()
        await channel.close()
        assert [peer.principal for peer in peers] == ["User:CN=app"]


async def test_without_client_certificates_callers_are_anonymous() -> None:
    async with serving(listener(principal_of=principal_of)) as (port, peers, _):
        await call(port, AUTHORITY.client())
        assert peers == [Peer("127.0.0.1", "me")]


@pytest.mark.parametrize("own", [None, Authority("another").key_store("x")])
async def test_a_required_certificate_that_is_missing_or_unknown_is_refused(
    own: Store | None,
) -> None:
    async with serving(listener(client_auth="required")) as (port, peers, _):
        with pytest.raises(RpcError) as raised:
            await call(port, AUTHORITY.client(own))
        assert raised.value.code is RpcCode.UNAVAILABLE
        assert peers == []


async def test_a_certificate_without_identity_is_denied() -> None:
    asked = listener(client_auth="required", principal_of=principal_of)
    async with serving(asked) as (port, _, _):
        with pytest.raises(RpcError, match="no rule matches 'CN=nobody'") as raised:
            await call(port, AUTHORITY.client(AUTHORITY.key_store("a", common_name="nobody")))
        assert raised.value.code is RpcCode.PERMISSION_DENIED


async def test_grpc_cannot_request_certificates_without_requiring_them() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.clients\.ssl\.client\.auth=requested"):
        async with serving(listener(client_auth="requested")):
            pass


async def test_new_connections_get_the_new_certificate(tmp_path: Path) -> None:
    store = in_files(tmp_path, AUTHORITY.key_store("127.0.0.1", common_name="node"))
    async with serving(listener(keystore=store)) as (port, peers, tls):
        before = await certificate_at(port)
        renewed = AUTHORITY.key_store("127.0.0.1", common_name="node")
        overwrite(store, renewed)
        await tls.refresh()
        after = await certificate_at(port)
        assert after != before
        assert after == tls.certificate
        await call(port, AUTHORITY.client())
        assert len(peers) == 1


async def certificate_at(port: int) -> x509.Certificate:
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    return x509.load_pem_x509_certificate(pem.encode())


async def test_a_channel_takes_a_renewed_certificate_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stele.grpc_channel, "LOOK_S", 0.0)
    asked = listener(client_auth="required", principal_of=principal_of)
    store = in_files(tmp_path, AUTHORITY.key_store("a", common_name="old"))
    async with serving(asked) as (port, peers, _):
        security = ClientSecurity(
            protocol=SecurityProtocol.SSL,
            tls=TlsSettings(keystore=store, truststore=AUTHORITY.trust_store),
        )
        channel = RealChannel(Address("127.0.0.1", port), None, security)
        stream = channel.stream(TALK)
        await stream.send(b"1")
        assert await stream.receive() == b"1"
        new = AUTHORITY.key_store("a", common_name="new")
        overwrite(store, Store(key="half writ"))
        await channel.call(WHO, b"x", timeout_s=5)
        overwrite(store, new)
        await channel.call(WHO, b"x", timeout_s=5)
        await stream.send(b"2")  # what runs goes on
        assert await stream.receive() == b"2"
        await stream.close()
        await channel.close()
        assert [peer.principal for peer in peers] == ["User:CN=old", "User:CN=old", "User:CN=new"]


@pytest.mark.parametrize(("valid_in", "valid_for"), [(-2 * DAY, -DAY), (DAY, 2 * DAY)])
async def test_a_channel_takes_no_certificate_that_is_not_valid_now(
    valid_in: datetime.timedelta,
    valid_for: datetime.timedelta,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stele.grpc_channel, "LOOK_S", 0.0)
    asked = listener(client_auth="required", principal_of=principal_of)
    store = in_files(tmp_path, AUTHORITY.key_store("a", common_name="old"))
    async with serving(asked) as (port, peers, _):
        security = AUTHORITY.client(store)
        channel = RealChannel(Address("127.0.0.1", port), None, security)
        await channel.call(WHO, b"x", timeout_s=5)
        bad = AUTHORITY.key_store("a", common_name="bad", valid_in=valid_in, valid_for=valid_for)
        overwrite(store, bad)
        await channel.call(WHO, b"x", timeout_s=5)
        overwrite(store, AUTHORITY.key_store("a", common_name="new"))
        await channel.call(WHO, b"x", timeout_s=5)
        await channel.close()
        assert [peer.principal for peer in peers] == ["User:CN=old", "User:CN=old", "User:CN=new"]


async def test_an_expired_certificate_is_shown_if_there_is_no_other() -> None:
    """The refusal is the listener's, which may have another clock."""
    async with serving(listener(client_auth="required")) as (port, _, _):
        with pytest.raises(RpcError) as raised:
            await call(port, AUTHORITY.client(AUTHORITY.key_store("a", valid_for=-DAY)))
        assert raised.value.code is RpcCode.UNAVAILABLE


async def test_a_channel_says_which_file_it_cannot_read() -> None:
    missing = ClientSecurity(
        protocol=SecurityProtocol.SSL,
        tls=TlsSettings(truststore=Store(location="/no/ca.pem")),
    )
    with pytest.raises(RpcError, match=r"ssl_truststore_location=/no/ca\.pem: No such file"):
        await call(1, missing)


async def test_a_peer_that_makes_no_handshake_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    options = dict(runtime.real.grpc_server.SERVER_OPTIONS)
    assert options["grpc.server_handshake_timeout_ms"] == 1000 * HANDSHAKE_S
    options["grpc.server_handshake_timeout_ms"] = 200
    monkeypatch.setattr(runtime.real.grpc_server, "SERVER_OPTIONS", tuple(options.items()))
    async with serving(listener()) as (port, _, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


async def test_a_channel_connects_over_a_slow_link() -> None:
    """A third of a second there and back, as between continents."""
    async with serving(listener()) as (port, peers, _), slow_link(port, one_way_s=0.17) as slow:
        channel = RealChannel(Address("127.0.0.1", slow), "me", AUTHORITY.client())
        await channel.call(WHO, b"x", timeout_s=20)
        await channel.close()
        assert len(peers) == 1


@contextlib.asynccontextmanager
async def slow_link(port: int, one_way_s: float) -> AsyncIterator[int]:
    """A port that hands on to another one of loopback, each piece so much later."""
    loop, ends = asyncio.get_running_loop(), list[asyncio.StreamWriter]()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            loop.call_later(one_way_s, writer.write, data)
        loop.call_later(one_way_s, writer.close)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        ends.extend((writer, far_writer))
        passing = pass_on(reader, far_writer), pass_on(far_reader, writer)
        await asyncio.gather(*passing, return_exceptions=True)

    link = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield link.sockets[0].getsockname()[1]
    finally:
        link.close()
        for end in ends:
            end.close()
        await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)


async def test_grpc_always_checks_the_host_name() -> None:
    unchecked = ClientSecurity(
        protocol=SecurityProtocol.SSL,
        tls=TlsSettings(truststore=AUTHORITY.trust_store, checks_host_name=False),
    )
    with pytest.raises(RpcError, match="gRPC always checks the host name"):
        await call(1, unchecked)
