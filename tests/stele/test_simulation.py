"""The clients in the deterministic simulation: whole clusters, all kinds of failures, one seed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from chaos.sim.cluster.cluster import KAFKA_PORT, SimCluster
from chaos.sim.laws.judged import JudgedCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Consumer, Producer
from stele.config import ClientWorld

TOPIC = "orders"
PARTITIONS = 2
RECORDS = 400


def world_of(cluster: SimCluster) -> ClientWorld:
    world = cluster.client_world
    return ClientWorld(world.clock, world.network, world.rng)


def servers_of(cluster: SimCluster) -> str:
    return ",".join(f"{broker.host}:{KAFKA_PORT}" for broker in cluster.brokers.values())


async def trouble(cluster: SimCluster, rng: random.Random) -> None:
    """Three failures, each healed before the next one comes."""
    kinds = ["kill", *rng.sample(["pause", "controller", "cut client", "cut broker"], 2)]
    for kind in rng.sample(kinds, 3):
        await asyncio.sleep(rng.uniform(0.2, 1.5))
        victim = cluster.leader(TOPIC, rng.randrange(PARTITIONS))
        fabric = cluster.simulation.fabric
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
        elif kind == "cut client":
            fabric.cut("client", victim.host)
            await asyncio.sleep(rng.uniform(0.1, 10))
            fabric.heal()
        else:
            fabric.isolate(victim.host, [each.host for each in cluster.nodes.values()])
            await asyncio.sleep(rng.uniform(0.1, 15))
            fabric.heal()
        for partition in range(PARTITIONS):
            await cluster.until_isr(TOPIC, 3, partition)


async def through_trouble(cluster: SimCluster) -> tuple[int, int]:
    """Write while things break, then read everything. Returns how many epochs rose, and the
    time."""
    rng = random.Random(cluster.simulation.seed)
    servers, world = servers_of(cluster), world_of(cluster)
    options: dict[str, Any] = {"world": world, "on_wait": lambda _: None}
    async with Admin(servers, **options) as admin:
        await admin.create_topics(
            [NewTopic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})]
        )
    await cluster.until_isr(TOPIC, 3)
    troubled = asyncio.get_running_loop().create_task(trouble(cluster, rng))
    async with Producer(servers, batch_size=300, **options) as producer:
        deliveries = []
        sent = 0
        while sent < RECORDS or not troubled.done():
            deliveries.append(await producer.send(TOPIC, b"%d" % sent, partition=sent % PARTITIONS))
            sent += 1
            await asyncio.sleep(rng.uniform(0, 0.02) if sent < RECORDS else 0.1)
        await troubled
        await producer.flush()
    where = [await delivery for delivery in deliveries]
    seen: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    async with Consumer(servers, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        left = sent
        while left > 0:
            records = await consumer.poll(timeout_ms=30_000)
            assert records, f"{left} of {sent} did not come back"
            for record in records:
                value = int(record.value or b"")
                seen[record.partition].append(value)
                assert where[value].offset == record.offset
            left -= len(records)
        assert await consumer.poll(timeout_ms=1000) == [], "more than was acknowledged"
    for partition, values in seen.items():
        assert values == list(range(partition, sent, PARTITIONS))
    rose = sum(cluster.partition(TOPIC, each).leader_epoch for each in range(PARTITIONS))
    return rose, int(cluster.simulation.now * 1000)


@pytest.mark.parametrize("seed", range(12))
def test_everything_acknowledged_is_read_once_and_in_order(seed: int) -> None:
    rose, _ = JudgedCluster(seed).run(through_trouble)
    assert rose > 0, "nothing happened: the test proves nothing"


def test_one_seed_is_one_run() -> None:
    assert JudgedCluster(3).run(through_trouble) == JudgedCluster(3).run(through_trouble)
