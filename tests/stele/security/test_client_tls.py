"""The client's side of TLS, against a real listener: what it believes, and how it explains."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest

from security.distinguished_name import subject_of
from stele.addresses import Address, SecurityProtocol
from stele.cluster.kafka_connection import ConnectionLostError, KafkaConnection
from stele.real import RealConnector
from stele.security.client_security import ClientSecurity, Store, TlsSettings
from tests.runtime.real.test_tls_transport import serving
from tests.support.timing import until
from tests.support.tls import AUTHORITY, Authority, in_files, listener, overwrite
from world.network import ServerTlsSettings

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)
ENDED = NOW - datetime.timedelta(days=30)
EXPIRED = AUTHORITY.key_store("127.0.0.1", valid_for=ENDED - NOW)


def security(**changes: object) -> ClientSecurity:
    tls = TlsSettings(**{"truststore": AUTHORITY.trust_store, **changes})  # type: ignore[arg-type]
    return ClientSecurity(protocol=SecurityProtocol.SSL, tls=tls)


async def refusal(of: ServerTlsSettings, client: ClientSecurity, host: str = "127.0.0.1") -> str:
    async with serving(of) as server:
        with pytest.raises(OSError) as caught:  # noqa: PT011
            await RealConnector(client).connect(Address(host, server.port), asyncio.Protocol)
    return str(caught.value)


async def test_a_believed_broker_is_connected_to() -> None:
    async with serving() as server:
        transport = await RealConnector(security()).connect(
            Address("127.0.0.1", server.port), asyncio.Protocol
        )
        transport.write(b"hello")
        sink = await server.sink()
        transport.close()
        assert sink.transport.get_extra_info("tls_version") == "TLSv1.3"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_the_version_is_chosen(version: str) -> None:
    async with serving() as server:
        transport = await RealConnector(security(enabled_protocols=(version,))).connect(
            Address("127.0.0.1", server.port), asyncio.Protocol
        )
        sink = await server.sink()
        assert sink.transport.get_extra_info("tls_version") == version
        transport.close()


async def test_an_unknown_authority_is_named_with_the_setting() -> None:
    said = await refusal(listener(), Authority("another").client())
    assert "(CN=127.0.0.1, issued by CN=authority) is not accepted" in said
    assert "is its authority in ssl_truststore_location?" in said


async def test_the_error_of_a_wrong_host_shows_the_names_of_the_certificate() -> None:
    of = listener(keystore=AUTHORITY.key_store("broker.example", "10.0.0.1"))
    said = await refusal(of, security())
    assert "is not valid for '127.0.0.1'; it names DNS:broker.example, IP:10.0.0.1." in said
    async with serving(of) as server:
        connector = RealConnector(security(checks_host_name=False))
        transport = await connector.connect(Address("127.0.0.1", server.port), asyncio.Protocol)
        transport.close()


async def test_the_error_of_an_expired_certificate_shows_its_date() -> None:
    said = await refusal(listener(keystore=EXPIRED), security())
    assert f"(CN=127.0.0.1) expired on {ENDED:%Y-%m-%d}" in said


async def test_a_broker_that_closes_at_once_may_speak_plaintext() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(OSError, match="closed during the TLS handshake: does this port speak TLS"):
        await RealConnector(security()).connect(Address("127.0.0.1", port), asyncio.Protocol)
    server.close()


async def test_an_answer_that_is_no_tls_is_reported() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(OSError, match=r"the peer does not speak TLS .*security_protocol=PLAINTEXT"):
        await RealConnector(security()).connect(Address("127.0.0.1", port), asyncio.Protocol)
    server.close()


async def test_a_missing_client_certificate_is_reported_at_the_first_request() -> None:
    async with serving(listener(client_auth="required")) as server:
        connection = await KafkaConnection.open(RealConnector(security()), "127.0.0.1", server.port)
        with pytest.raises(ConnectionLostError) as caught:
            await connection.negotiate(timeout_s=5)
        assert "certificate required" in str(caught.value).lower().replace("_", " ")


async def test_the_error_of_an_unreadable_store_names_its_file() -> None:
    missing = security(truststore=Store(location="/no/ca.pem"))
    with pytest.raises(OSError, match=r"ssl_truststore_location=/no/ca.pem: No such file"):
        await RealConnector(missing).connect(Address("127.0.0.1", 1), asyncio.Protocol)


async def test_a_changed_file_counts_from_the_next_connection_on(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(Authority().pem)
    connector = RealConnector(security(truststore=Store(location=str(file))))
    async with serving() as server:
        address = Address("127.0.0.1", server.port)
        with pytest.raises(OSError, match="is not accepted"):
            await connector.connect(address, asyncio.Protocol)
        file.write_text(AUTHORITY.pem)
        (await connector.connect(address, asyncio.Protocol)).close()
        file.write_text("half writ")  # the last good one stays
        (await connector.connect(address, asyncio.Protocol)).close()


@pytest.mark.parametrize(("valid_in", "valid_for"), [(-2 * DAY, -DAY), (DAY, 2 * DAY)])
async def test_a_certificate_that_is_not_valid_now_takes_no_other_ones_place(
    valid_in: datetime.timedelta, valid_for: datetime.timedelta, tmp_path: Path
) -> None:
    asked = listener(
        client_auth="required", principal_of=lambda shown: subject_of(shown) if shown else ""
    )
    file = in_files(tmp_path, AUTHORITY.key_store("a", common_name="old"))
    connector = RealConnector(security(keystore=file))
    async with serving(asked) as server:

        async def shows(subject: str) -> None:
            count = len(server.sinks)
            address = Address("127.0.0.1", server.port)
            transport = await connector.connect(address, asyncio.Protocol)
            await until(lambda: len(server.sinks) > count and bool(server.sinks[-1].principal))
            assert server.sinks[-1].principal == subject
            transport.close()

        await shows("CN=old")
        bad = AUTHORITY.key_store("a", common_name="bad", valid_in=valid_in, valid_for=valid_for)
        overwrite(file, bad)
        await shows("CN=old")
        overwrite(file, AUTHORITY.key_store("a", common_name="new"))
        await shows("CN=new")
