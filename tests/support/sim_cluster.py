"""What scenarios of simulated clusters have in common."""

from __future__ import annotations

from typing import Any

from chaos.sim.cluster.cluster import KAFKA_PORT, SimCluster
from chaos.sim.cluster.node import SimNode
from stele.aio import Admin
from stele.config import ClientWorld

TOPIC = "orders"
SAFE = {"min.insync.replicas": "2"}


async def a_topic(cluster: SimCluster, configs: dict[str, str] | None = None) -> None:
    await cluster.client.create_topic(TOPIC, configs=SAFE if configs is None else configs)
    await cluster.until_isr(TOPIC, 3)


async def write(cluster: SimCluster, count: int, prefix: str = "v") -> None:
    for i in range(count):
        await cluster.client.produce_until_acknowledged(TOPIC, f"{prefix}{i}".encode())


def admin_of(cluster: SimCluster, **options: Any) -> Admin:
    world = cluster.client_world
    servers = ",".join(f"{broker.host}:{KAFKA_PORT}" for broker in cluster.brokers.values())
    return Admin(
        servers,
        world=ClientWorld(world.clock, world.network, world.rng),
        on_wait=lambda _: None,
        **options,
    )


def log_bytes(cluster: SimCluster, node: SimNode) -> bytes:
    """A replica's first segment, as its processes see it."""
    disk = node.machine.disk
    return bytes(disk.file(f"/data/{TOPIC}-0/00000000000000000000.log").data)
