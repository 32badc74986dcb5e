"""Scenarios with the replica managers of three brokers on simulated network and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.replica_cluster import Node, ReplicaCluster
from tests.support.timing import until

Scenario = Callable[[ReplicaCluster], Awaitable[None]]


def ends(cluster: ReplicaCluster, *broker_ids: int) -> list[int]:
    return [cluster[each].replica().log.end_offset for each in broker_ids]


async def settled(cluster: ReplicaCluster) -> None:
    """Wait until the topic exists and all replicas follow."""
    assigned = cluster.state().replicas
    await until(lambda: all(cluster[each].holds() for each in assigned))
    await asyncio.sleep(0.1)


def run(scenario: Scenario, **options: object) -> ReplicaCluster:
    cluster = ReplicaCluster(**options)  # type: ignore[arg-type]
    cluster.run(scenario)
    return cluster


def with_topic(
    scenario: Scenario, *assignments: tuple[int, ...], min_insync: int = 2, **configs: str
) -> None:
    async def whole(cluster: ReplicaCluster) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        cluster.create_topic(*(assignments or ((1, 2, 3),)), configs=named, min_insync=min_insync)
        await settled(cluster)
        await scenario(cluster)

    run(whole)


async def write_apart(cluster: ReplicaCluster, node: Node, count: int) -> None:
    """Write to a leader that no replica follows any more."""
    for _ in range(count):
        await node.produce(acks=1)
