"""Replication throttles that operators set in a simulated cluster."""

from __future__ import annotations

import asyncio

from chaos.sim.faults.throttles import Throttles
from chaos.sim.laws.judged import JudgedCluster
from metadata.configs import CLUSTER, ConfigResource
from tests.support.sim_cluster import judged

TOPIC = "plain"
RATE = "follower.replication.throttled.rate"


@judged(3)
async def test_a_throttle_that_comes_into_force_late_is_lifted(cluster: JudgedCluster) -> None:
    await cluster.client.create_topic(TOPIC)
    throttles = Throttles(cluster, {TOPIC})
    easing = asyncio.create_task(throttles.stay_eased())
    # The requests of an operator who has long given up.
    await cluster.client.alter_configs(CLUSTER, {RATE: "0"})
    await asyncio.sleep(2.5)
    assert RATE in cluster.image.configs.of(CLUSTER)  # it throttles nothing
    await cluster.client.alter_configs(
        ConfigResource.topic(TOPIC), {"follower.replication.throttled.replicas": "*"}
    )
    await asyncio.sleep(2.5)
    assert RATE not in cluster.image.configs.of(CLUSTER)
    easing.cancel()
