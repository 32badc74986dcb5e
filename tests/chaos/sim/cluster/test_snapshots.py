"""Whole clusters whose metadata log is often cut behind snapshots: no node misses a record."""

from __future__ import annotations

import asyncio
import random

import pytest

from chaos.sim.cluster.cluster import SimCluster
from tests.support.sim_cluster import TOPIC, a_topic, judged, write

SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.log.max.snapshot.interval.ms": "5000",
}


@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize("seed", range(2))
@judged(settings=SETTINGS)
async def test_nodes_that_were_away_learn_everything(
    cluster: SimCluster, seed: int, combined: bool
) -> None:
    rng = random.Random(seed)
    await a_topic(cluster)
    for round_number in range(4):
        away = rng.choice([*cluster.brokers.values(), *cluster.controllers.values()])
        away.kill()
        for number in range(6):
            await cluster.client.create_topic(f"topic-{round_number}-{number}")
            await write(cluster, 2, f"{round_number}-{number}")
            await asyncio.sleep(2.0)
        away.start()
        await cluster.until_isr(TOPIC, 3)
        await write(cluster, 2, f"after {round_number}")
    await cluster.client.check_promises(TOPIC)
    await asyncio.sleep(3.0)
    for node in {**cluster.controllers, **cluster.brokers}.values():
        assert node.node is not None
        assert node.node.quorum is not None
        assert node.node.quorum.log_start_offset > 20
        for role in (node.node.broker, node.node.controller):
            assert role is None or len(role.image.topics) == 25


@judged(7, settings=SETTINGS)
async def test_a_cluster_starts_from_its_snapshots(cluster: SimCluster) -> None:
    await a_topic(cluster)
    for number in range(12):
        await cluster.client.create_topic(f"topic-{number}")
        await write(cluster, 2, f"{number}")
        await asyncio.sleep(2.0)
    nodes = [*cluster.brokers.values(), *cluster.controllers.values()]
    for node in nodes:
        node.kill()
    for node in nodes:
        node.start()
    await cluster.until(lambda: all(node.ready for node in nodes), "every node is ready")
    await cluster.until_isr(TOPIC, 3)
    await write(cluster, 5, "again")
    await cluster.client.check_promises(TOPIC)
