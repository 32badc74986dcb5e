"""A simulated cluster with one topic, and what fails while thin clients use it."""

from __future__ import annotations

import asyncio
import random

from chaos.sim.cluster.cluster import KAFKA_PORT, SimCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Consumer
from stele.config import ClientWorld
from stele.records import ConsumerRecord

TOPIC = "orders"
PARTITIONS = 2


def world_of(cluster: SimCluster) -> ClientWorld:
    world = cluster.client_world
    return ClientWorld(world.clock, world.network, world.rng)


def servers_of(cluster: SimCluster) -> str:
    return ",".join(f"{broker.host}:{KAFKA_PORT}" for broker in cluster.brokers.values())


async def create_topic(cluster: SimCluster) -> None:
    async with Admin(servers_of(cluster), world=world_of(cluster), on_wait=lambda _: None) as admin:
        await admin.create_topics(
            [NewTopic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})]
        )
    await cluster.until_isr(TOPIC, 3)


async def read_all(cluster: SimCluster) -> list[ConsumerRecord]:
    """All records of the topic, in the order of their offsets."""
    async with Consumer(
        servers_of(cluster),
        auto_offset_reset="earliest",
        world=world_of(cluster),
        on_wait=lambda _: None,
    ) as consumer:
        names = [(TOPIC, partition) for partition in range(PARTITIONS)]
        ends = await consumer.end_offsets(names)
        consumer.assign(names)
        found: list[ConsumerRecord] = []
        for name, end in ends.items():
            while await consumer.position(*name) < end:
                found += await consumer.poll(timeout_ms=30_000)
    return sorted(found, key=lambda each: (each.partition, each.offset))


async def trouble(cluster: SimCluster, rng: random.Random) -> None:
    """Three failures, each healed before the next one comes."""
    for kind in rng.sample(["kill", "kill", "pause", "controller", "isolate"], 3):
        await asyncio.sleep(rng.uniform(0.2, 1.5))
        victim = cluster.leader(TOPIC, rng.randrange(PARTITIONS))
        if kind == "kill":
            victim.kill()
            await asyncio.sleep(rng.uniform(0.1, 4))
            victim.start()
        elif kind == "pause":
            victim.pause()
            await asyncio.sleep(rng.uniform(0.1, 15))
            victim.resume()
        elif kind == "controller":
            active = cluster.active_controller
            if active is not None:
                active.kill()
                await asyncio.sleep(rng.uniform(0.1, 4))
                active.start()
        else:
            fabric = cluster.simulation.fabric
            fabric.isolate(victim.host, [each.host for each in cluster.nodes.values()])
            await asyncio.sleep(rng.uniform(0.1, 15))
            fabric.heal()
        for partition in range(PARTITIONS):
            await cluster.until_isr(TOPIC, 3, partition)
