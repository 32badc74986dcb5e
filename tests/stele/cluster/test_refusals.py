"""Failures of TLS that are raised at once, and failures that a client waits out."""

from __future__ import annotations

import asyncio

import pytest

from stele.addresses import Address, SecurityProtocol
from stele.cluster.misfit import why_misfit
from stele.errors import SteleError, TlsError
from stele.ids import TopicPartition
from stele.port_probe import look_at_port
from stele.security.client_security import ClientSecurity, Store, TlsSettings
from stele.security.tls_refusals import TlsRefusedError
from stele.world import PortFacts
from tests.runtime.real.test_tls_transport import serving
from tests.support.stele import FakeCluster, Stage, on_stage
from tests.support.tls import listener

PARTITION = TopicPartition("t", 0)
SAID = "the broker's certificate expired"


def refuse(cluster: FakeCluster) -> None:
    """From now on brokers have an expired certificate. Open connections are lost."""
    cluster.refusal = TlsRefusedError(SAID)
    for connection in list(cluster.connections):
        connection.abort()


@on_stage
async def test_the_first_failure_is_raised_at_once(stage: Stage) -> None:
    refuse(stage.cluster)
    began_s = stage.world.clock.monotonic()
    async with stage.admin() as admin:
        with pytest.raises(TlsError) as caught:
            await admin.list_topics()
    async with stage.producer() as producer:
        with pytest.raises(TlsError):
            await producer.send("t", b"x")
    assert stage.world.clock.monotonic() - began_s < 1
    first = stage.cluster.bootstrap_servers.split(",")[0]
    assert f"cannot connect to {first}: {SAID}" in str(caught.value)
    assert "Kafka ports" not in str(caught.value)


@on_stage
async def test_a_client_that_has_reached_the_cluster_waits_for_the_broker_to_heal(
    stage: Stage,
) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer, stage.consumer() as consumer:
        await (await producer.send("t", b"1"))
        assert await consumer.end_offsets([PARTITION]) == {PARTITION: 1}
        refuse(stage.cluster)
        sent = await producer.send("t", b"2")
        asking = asyncio.ensure_future(consumer.end_offsets([PARTITION]))
        await asyncio.sleep(5)
        assert not sent.done()
        assert not asking.done()
        stage.cluster.refusal = None
        await sent
        assert set(await asking) == {PARTITION}
    assert stage.cluster.values() == [b"1", b"2"]


@on_stage
async def test_a_broker_that_does_not_heal_is_named_with_its_fault(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.consumer(default_api_timeout_ms=3_000) as consumer:
        await consumer.end_offsets([PARTITION])
        refuse(stage.cluster)
        with pytest.raises(SteleError, match=SAID):
            await consumer.end_offsets([PARTITION])


# ------------------------------------------------------------------------ what a port speaks


def own(protocol: str, keystore: Store | None = None) -> ClientSecurity:
    tls = TlsSettings(keystore=keystore or Store())
    return ClientSecurity(protocol=SecurityProtocol[protocol], tls=tls)


@pytest.mark.parametrize(
    ("client", "port", "said"),
    [
        ("PLAINTEXT", PortFacts(False, ()), None),
        ("PLAINTEXT", PortFacts(False), None),
        ("SSL", PortFacts(True, ()), None),
        ("SSL", PortFacts(True), None),
        ("SASL_SSL", PortFacts(True, ("PLAIN",)), None),
        ("PLAINTEXT", PortFacts(True, ()), "this port is SSL, and security_protocol is PLAINTEXT"),
        ("SSL", PortFacts(False, ()), "set it to PLAINTEXT"),
        ("SSL", PortFacts(True, ("A", "B")), "set it to SASL_SSL, with sasl_mechanism one of A, B"),
        ("SASL_SSL", PortFacts(True, ()), "this port is SSL, and security_protocol is SASL_SSL"),
        ("PLAINTEXT", PortFacts(True), "this port speaks TLS, and security_protocol is PLAINTEXT"),
        ("SSL", PortFacts(True, needs_certificate=True), "set ssl_keystore_location"),
    ],
)
def test_what_does_not_fit(client: str, port: PortFacts, said: str | None) -> None:
    why = why_misfit(own(client), port)
    assert (why is None) if said is None else said in (why or "")


def test_a_client_with_a_certificate_is_not_told_to_have_one() -> None:
    with_one = own("SSL", Store(location="me.pem"))
    assert why_misfit(with_one, PortFacts(True, needs_certificate=True)) is None


async def looked(port: int) -> PortFacts | None:
    found = asyncio.get_running_loop().run_in_executor(
        None, look_at_port, Address("127.0.0.1", port)
    )
    return await found


async def test_a_port_of_tls_that_requires_a_certificate() -> None:
    async with serving(listener(client_auth="required")) as server:
        assert await looked(server.port) == PortFacts(True, None, needs_certificate=True)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0\0\0\0", b""])
async def test_a_port_that_does_not_speak_kafkas_protocol(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    assert await looked(server.sockets[0].getsockname()[1]) is None
    server.close()


async def test_a_port_where_nobody_is() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert await looked(port) is None
