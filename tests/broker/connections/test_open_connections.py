"""Open connections on real sockets: refused, held, displaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import cast

import pytest
from immutables import Map

from broker.api import KafkaApis
from broker.api.server import KafkaServer
from broker.connections import held, open_connections
from broker.connections.open_connections import OpenConnections
from metadata.client_quotas import ClientQuotas
from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta
from metadata.image import EMPTY
from runtime.authorization.caller import NODE_ITSELF
from runtime.kafka.requests import Timing
from runtime.metrics.registry import MetricsRegistry
from runtime.quota.addresses import AddressQuotas
from runtime.real.network import RealNetwork
from runtime.tls.listeners import TlsListeners
from stele.real import RealClock
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.client_quotas import entity
from tests.support.connections import Fake, as_connection, two_listeners
from tests.support.timing import until


class _NoApis:
    """Takes no requests: what a client sends, if it is read, closes its connection."""

    turn_clock = None

    @property
    def timing(self) -> Timing:
        return self

    def forget(self, connection: object) -> None:
        pass


async def listening(
    registry: MetricsRegistry, addresses: AddressQuotas | None = None, **named: str
) -> KafkaServer:
    """A server on real sockets with these settings."""
    network = RealNetwork()
    tls = TlsListeners(network, RealClock(), registry)
    config = two_listeners(**named)
    quotas = addresses or AddressQuotas({})
    server = KafkaServer(config, network, registry, tls, quotas, RealClock())
    await server.bind(cast(KafkaApis, _NoApis()))
    server.connections.apply(MetadataDelta(EMPTY), EMPTY)
    return server


async def test_a_refused_connection_is_closed_at_once_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = MetricsRegistry()
    server = await listening(registry, max_connections_per_ip="2")
    port = server.ports["CLIENTS"]
    admitted = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
    assert b"stele_connections_refused_total 20" in registry.render()
    assert 1 <= len(caplog.messages) < 20
    assert "max.connections.per.ip" in caplog.messages[0]
    admitted[0][1].close()
    await until(lambda: b"stele_connection_count 1" in registry.render())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: b"stele_connection_count 2" in registry.render())
    assert b'stele_listener_connections{listener="CLIENTS"} 2' in registry.render()
    assert b'stele_listener_connections{listener="BROKERS"} 0' in registry.render()
    writer.close()
    admitted[1][1].close()
    await server.close()


async def test_a_broker_takes_the_place_of_the_client_that_was_silent_for_longest() -> None:
    registry = MetricsRegistry()
    server = await listening(registry, max_connections="2")
    clients = [await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"])]
    await asyncio.sleep(0.01)  # the loop's clock goes on
    clients.append(await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"]))
    _, broker = await asyncio.open_connection("127.0.0.1", server.ports["BROKERS"])
    assert await asyncio.wait_for(clients[0][0].read(), 5) == b""
    assert b"stele_connection_count 2" in registry.render()
    for writer in (clients[0][1], clients[1][1], broker):
        writer.close()
    await server.close()


class Clients:
    """Connections from addresses of this machine."""

    def __init__(self, server: KafkaServer) -> None:
        self._ports = server.ports
        self.open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def come(self, address: str, listener: str = "CLIENTS") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._ports[listener], local_addr=(address, 0)
        )
        self.open.append((reader, writer))
        writer.write(NO_FRAME)
        return reader

    def leave(self) -> None:
        for _, writer in self.open:
            writer.close()


NO_FRAME = b"x" * 4
"""A connection that reads this closes."""


async def is_over(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 60) == b""


BURST = 11
ADMITTED = 'stele_listener_connections_admitted_total{listener="CLIENTS"}'


async def test_above_the_rate_a_connection_is_held_and_read_when_its_turn_comes() -> None:
    registry = MetricsRegistry()
    server = await listening(registry, max_connection_creation_rate="1")
    clients, loop = Clients(server), asyncio.get_running_loop()
    began_s = loop.time()
    readers = [await clients.come("127.0.0.2") for _ in range(BURST + 2)]
    await is_over(await clients.come("127.0.0.2", "BROKERS"))
    assert registry.values()[ADMITTED] <= BURST + loop.time() - began_s
    await asyncio.gather(*map(is_over, readers))
    assert loop.time() - began_s > 1.9, "the last two came one after the other"
    assert registry.values()[ADMITTED] == BURST + 2
    assert registry.values()["stele_connections_refused_total"] == 0
    clients.leave()
    await server.close()


async def test_a_storm_from_one_address_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "HELD_MAX", 60)
    registry = MetricsRegistry()
    server = await listening(registry, max_connection_creation_rate="1")
    clients = Clients(server)
    for _ in range(100):
        await clients.come("127.0.0.2")
    await until(lambda: registry.values()["stele_connections_held"] >= 40)
    await is_over(await clients.come("127.0.0.3"))
    values = registry.values()
    assert values["stele_connections_held"] > 0, "the storm still waits"
    closed = values['stele_connections_closed_total{reason="max.connection.creation.rate"}']
    assert closed == values["stele_connections_refused_total"] > 0
    clients.leave()
    await server.close()


async def test_an_address_above_its_quota_is_held_and_closed_and_others_are_not() -> None:
    registry = MetricsRegistry()
    quota = ClientQuotas({entity(ip=None): Map({"connection_creation_rate": 1.0})})
    server = await listening(registry, AddressQuotas(quota), max_connection_creation_rate="100")
    clients, loop = Clients(server), asyncio.get_running_loop()
    began_s = loop.time()
    readers = [await clients.come("127.0.0.2") for _ in range(60)]
    await is_over(await clients.come("127.0.0.3"))
    await asyncio.gather(*map(is_over, readers))
    await until(lambda: registry.values()["stele_connections_held"] == 0)
    values = registry.values()
    refused = values['stele_connections_closed_total{reason="connection_creation_rate"}']
    assert values[ADMITTED] - 1 <= BURST + loop.time() - began_s
    assert values[ADMITTED] + refused == 61
    assert refused == values["stele_connections_refused_total"]
    assert values['stele_connections_refused_by_address{ip="127.0.0.2"}'] == refused
    clients.leave()
    await server.close()


def set_limits(server: KafkaServer, resource: ConfigResource, **named: str) -> None:
    """As the metadata log brings them."""
    delta = MetadataDelta(EMPTY)
    for offset, (name, value) in enumerate(named.items()):
        config = pb.ConfigRecord(
            resource_type=pb.ConfigResourceType.BROKER,
            resource_name=resource.name,
            name=name.replace("_", "."),
            value=value,
        )
        delta.replay(offset, pb.MetadataRecord(config=config))
    server.connections.apply(delta, delta.apply())


async def test_limits_change_while_connections_are_open() -> None:
    registry = MetricsRegistry()
    server = await listening(registry, listener_name_clients_max_connections="3")
    ends = [await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"]) for _ in range(4)]
    assert await asyncio.wait_for(ends[3][0].read(), 5) == b""
    set_limits(server, CLUSTER, listener_name_clients_max_connections="4", max_connections="9")
    ends.append(await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"]))
    ends.append(await asyncio.open_connection("127.0.0.1", server.ports["BROKERS"]))
    await until(lambda: registry.values()["stele_connection_count"] == 5)
    set_limits(server, ConfigResource.broker(2), max_connections="1")
    set_limits(server, ConfigResource.broker(1), max_connections="3")
    await until(lambda: registry.values()["stele_connection_count"] == 3)
    for reader, _ in ends[:2]:
        assert await asyncio.wait_for(reader.read(), 5) == b"", "the oldest ones are closed"
    assert registry.values()['stele_listener_connections{listener="BROKERS"}'] == 1
    for _, writer in ends:
        writer.close()
    await server.close()


async def test_connections_that_nobody_uses_are_displaced_first() -> None:
    config = two_listeners(max_connections="4")
    connections = OpenConnections(config, MetricsRegistry(), AddressQuotas({}))
    connections.apply(MetadataDelta(EMPTY), EMPTY)
    busy, silent = Fake("busy", in_flight=1), Fake("silent", last_active_s=8.0)
    silent_longer = Fake("silent longer", last_active_s=5.0, is_stalled=True)
    broker = Fake("broker", listener_name="BROKERS")
    for each in (busy, silent, silent_longer, broker):
        connections.opened(as_connection(each))
    order = []
    for number in range(4):
        come = Fake(f"broker {number}", listener_name="BROKERS")
        connections.opened(as_connection(come))
        order.append([each.name for each in (busy, silent, silent_longer) if each.is_closed])
    # None has been told of its end yet, and so each arrival finds those closing.
    assert order[0] == ["silent longer"]
    assert order[1:3] == [["silent", "silent longer"], ["busy", "silent", "silent longer"]]
    assert (silent_longer.done, silent.done) == (["aborted"], ["closed"])
    assert not broker.done, "connections of brokers stay"


async def test_the_nodes_own_connections_are_not_counted() -> None:
    registry = MetricsRegistry()
    connections = OpenConnections(two_listeners(max_connections="0"), registry, AddressQuotas({}))
    own = Fake("own", principal=NODE_ITSELF)
    connections.opened(as_connection(own))
    assert registry.values()["stele_connection_count"] == 1
    assert registry.values()['stele_listener_connections{listener="CLIENTS"}'] == 0
    assert not own.done
    connections.closed(as_connection(own))
    assert registry.values()["stele_connection_count"] == 0


async def test_what_comes_before_the_metadata_waits_for_its_limits() -> None:
    registry, addresses = MetricsRegistry(), AddressQuotas({})
    connections = OpenConnections(two_listeners(max_connections="14"), registry, addresses)
    early = [Fake(f"early {number}") for number in range(15)]
    for each in early:
        connections.opened(as_connection(each))
    assert [each.is_held for each in early] == [True] * 14 + [False]
    assert early[14].done == ["closed"], "this limit is known"
    early[0].close()
    connections.closed(as_connection(early[0]))
    # The publisher brings the quotas first.
    addresses.take({entity(ip=None): {"connection_creation_rate": 1.0}})
    for _ in connections.apply(MetadataDelta(EMPTY), EMPTY) or ():
        pass
    assert [each.is_held for each in early[1:14]] == [False] * BURST + [True] * 2
    assert registry.values()[ADMITTED] == BURST
    assert registry.values()["stele_connections_held"] == 2
    assert registry.values()["stele_connection_count"] == BURST
    for each in early[1:14]:
        connections.closed(as_connection(each))
    assert registry.values()["stele_connection_count"] == 0
    assert registry.values()["stele_connections_held"] == 0
    assert dict(connections.by_address) == {}


async def test_of_those_that_wait_for_the_metadata_the_oldest_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_connections, "EARLY_MAX", 3)
    connections = OpenConnections(two_listeners(), MetricsRegistry(), AddressQuotas({}))
    early = [Fake(f"early {number}") for number in range(5)]
    for each in early:
        connections.opened(as_connection(each))
    assert [each.is_closed for each in early] == [True, True, False, False, False]
    for each in early[:2]:
        connections.closed(as_connection(each))
    for _ in connections.apply(MetadataDelta(EMPTY), EMPTY) or ():
        pass
    assert not any(each.is_held for each in early[2:])
    assert dict(connections.by_address) == {"10.0.0.1": 3}
