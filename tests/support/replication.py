"""Scenarios with the replica managers of three brokers on simulated network and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.support.replica_cluster import DIRECTORY, Node, ReplicaCluster
from tests.support.timing import until
from tests.support.worlds import Scenario, world


def ends(cluster: ReplicaCluster, *broker_ids: int) -> list[int]:
    return [cluster[each].replica().log.end_offset for each in broker_ids]


async def settled(cluster: ReplicaCluster) -> None:
    """Wait until the topic exists and all replicas follow."""
    assigned = cluster.state().replicas
    await until(lambda: all(cluster[each].holds() for each in assigned))
    await asyncio.sleep(0.1)


@world("cluster")
def with_brokers(
    scenario: Scenario,
    /,
    *,
    brokers: int = 3,
    seed: int = 1,
    directories: Sequence[str] = (DIRECTORY,),
    **settings: object,
) -> None:
    """Brokers without a topic. ``settings``: of all nodes, by key with underscores for dots."""
    cluster = ReplicaCluster(brokers=brokers, seed=seed, directories=directories, **settings)
    cluster.run(scenario)


@world("cluster")
def with_topic(
    scenario: Scenario, /, *assignments: tuple[int, ...], min_insync: int = 2, **configs: str
) -> None:
    """Three brokers with a topic. ``assignments``: of its partitions; by default it has one on all
    brokers. ``configs``: of the topic, by key with underscores for dots."""

    async def whole(cluster: ReplicaCluster) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        cluster.create_topic(*(assignments or ((1, 2, 3),)), configs=named, min_insync=min_insync)
        await settled(cluster)
        await scenario(cluster)

    ReplicaCluster().run(whole)


async def write_apart(cluster: ReplicaCluster, node: Node, count: int) -> None:
    """Write to a leader that no replica follows any more."""
    for _ in range(count):
        await node.produce(acks=1)
