"""Functions for scenarios of simulated clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from chaos.sim.cluster.cluster import KAFKA_PORT, SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.judged import JudgedCluster
from stele.addresses import Address
from stele.aio import Admin, Consumer
from stele.config import ClientWorld
from stele.records import ConsumerRecord
from stele.world import Channel, Connector, PortFacts
from tests.support.worlds import Scenario, gives

TOPIC = "orders"
SAFE = {"min.insync.replicas": "2"}


@gives("cluster")
def judged(
    scenario: Scenario,
    /,
    seed: int = 1,
    *,
    controllers: int = 3,
    brokers: int = 3,
    combined: bool = False,
    settings: Mapping[str, str] | None = None,
) -> None:
    """A whole cluster of simulated nodes, whose laws are checked while the test runs."""
    cluster = JudgedCluster(
        seed, controllers=controllers, brokers=brokers, combined=combined, settings=settings
    )
    cluster.run(scenario)


async def a_topic(cluster: SimCluster, configs: dict[str, str] | None = None) -> None:
    await cluster.client.create_topic(TOPIC, configs=SAFE if configs is None else configs)
    await cluster.until_isr(TOPIC, 3)


async def write(cluster: SimCluster, count: int, prefix: str = "v") -> None:
    for i in range(count):
        await cluster.client.produce_until_acknowledged(TOPIC, f"{prefix}{i}".encode())


class OnlyThrough:
    """A client's network on which one host alone answers gRPC. All others refuse."""

    def __init__(self, connector: Connector, host: str) -> None:
        self._connector = connector
        self._host = host
        self.security = connector.security

    async def connect(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        return await self._connector.connect(address, factory)

    async def look_at_port(self, address: Address) -> PortFacts | None:
        return None

    def channel(self, address: Address, client_id: str | None = None) -> Channel:
        return self._connector.channel(
            address if address.host == self._host else address._replace(host="nobody")
        )


def admin_of(cluster: SimCluster, *, through: SimNode | None = None, **options: Any) -> Admin:
    """``through``: the one broker that it reaches; by default all of them."""
    world = cluster.client_world
    connector = world.network if through is None else OnlyThrough(world.network, through.host)
    return Admin(
        _servers(cluster),
        world=ClientWorld(world.clock, connector, world.rng),
        on_wait=lambda _: None,
        **options,
    )


def consumer_of(cluster: SimCluster, **options: Any) -> Consumer:
    """It reads the topic's one partition from the beginning."""
    world = cluster.client_world
    consumer = Consumer(
        _servers(cluster),
        world=ClientWorld(world.clock, world.network, world.rng),
        on_wait=lambda _: None,
        **options,
    )
    consumer.assign([(TOPIC, 0)])
    consumer.seek(TOPIC, 0, 0)
    return consumer


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until so many records came."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        found += await consumer.poll(timeout_ms=1000)
    return found


def _servers(cluster: SimCluster) -> str:
    return ",".join(f"{broker.host}:{KAFKA_PORT}" for broker in cluster.brokers.values())


def log_bytes(cluster: SimCluster, node: SimNode) -> bytes:
    """A replica's first segment as its process sees it."""
    disk = node.machine.disk
    return bytes(disk.file(f"/data/{TOPIC}-0/00000000000000000000.log").data)
