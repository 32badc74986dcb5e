"""The gateway's clients reach their own broker without the network, and others by it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.gateway.own_broker import OwnBroker
from broker.service.context import BrokerContext
from metadata.brokers import BrokerRegistration, Endpoint
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.in_process import InProcessTransport
from stele.addresses import Address
from stele.security.client_security import PLAINTEXT
from stele.wire.v1 import log_pb2 as pb
from stele.world import Channel, Connector, PortFacts
from tests.support.one_node import HOST, on_a_node
from tests.support.thin_client import Subscribing, publish, record
from tests.support.thin_node import create
from tests.support.worlds import virtual
from world.world import World

OWN, OTHER = ("b1", 9092), ("b2", 9092)


class Network:
    """Is asked for connections, and has none."""

    security = PLAINTEXT

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def connect(self, address: Address, factory: Any) -> asyncio.Transport:
        self.asked.append(address[:2])
        raise OSError("nobody is there")

    async def look_at_port(self, address: Address) -> PortFacts | None:
        return None

    def channel(self, address: Address, client_id: str | None = None) -> Channel:
        raise NotImplementedError


class Quiet(asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(1)


def context_of(*registrations: BrokerRegistration) -> BrokerContext:
    brokers = {each.broker_id: each for each in registrations}
    context = SimpleNamespace(
        broker_id=1,
        config=SimpleNamespace(inter_broker_listener_name="INTERNAL"),
        image=lambda: SimpleNamespace(broker=brokers.get),
    )
    return cast(BrokerContext, context)


def registered(broker_id: int, host: str) -> BrokerRegistration:
    endpoints = (
        Endpoint("EXTERNAL", "outside", 9092, "PLAINTEXT"),
        Endpoint("INTERNAL", host, 9092, "PLAINTEXT"),
    )
    return BrokerRegistration(broker_id, 1, b"", endpoints=endpoints)


@virtual
async def test_only_the_own_address_needs_no_network() -> None:
    network = Network()
    accepted: list[str] = []

    def accept(listener: str) -> KafkaServerProtocol:
        accepted.append(listener)
        return cast(KafkaServerProtocol, Quiet())

    context = context_of(registered(1, "b1"), registered(2, "b2"))
    own = OwnBroker(context, cast(Connector, network), accept)
    transport = await own.connect(Address(*OWN), Quiet)
    assert isinstance(transport, InProcessTransport)
    assert accepted == ["INTERNAL"]
    for place in (OTHER, ("outside", 9092), ("b1", 9093)):
        with pytest.raises(OSError, match="nobody is there"):
            await own.connect(Address(*place), Quiet)
    assert network.asked == [OTHER, ("outside", 9092), ("b1", 9093)]


@virtual
async def test_a_broker_that_is_not_registered_yet_uses_the_network() -> None:
    network = Network()
    own = OwnBroker(
        context_of(), cast(Connector, network), lambda _: pytest.fail("it has no address")
    )
    with pytest.raises(OSError, match="nobody is there"):
        await own.connect(Address(*OWN), Quiet)


@on_a_node
async def test_a_node_alone_opens_no_connection_to_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thin clients are served all the same."""
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    opened: list[tuple[str, int]] = []
    network = type(world.network)
    connect = network.connect

    async def noted(self: Any, address: Address, factory: Any) -> asyncio.Transport:
        opened.append(address[:2])
        return await connect(self, address, factory)

    monkeypatch.setattr(network, "connect", noted)
    results = await publish(channel, [record(b"%d" % i) for i in range(3)])
    assert [each.offset for each in results] == [0, 1, 2]
    subscribing = Subscribing(channel)
    place = pb.PartitionStart(topic="t", edge=pb.PartitionStart.EDGE_EARLIEST)
    await subscribing.start(place, credit=pb.Credit(records=3))
    assert [each.value for each in await subscribing.records(3)] == [b"0", b"1", b"2"]
    await subscribing.end()
    assert opened == []
