"""Scenarios with the replica managers of three brokers on simulated network and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.replica_cluster import DIRECTORY, Node, ReplicaCluster
from tests.support.timing import until
from tests.support.worlds import Scenario, gives


def ends(cluster: ReplicaCluster, *broker_ids: int) -> list[int]:
    return [cluster[each].replica().log.end_offset for each in broker_ids]


async def settled(cluster: ReplicaCluster) -> None:
    """Wait until the topic exists and all replicas follow."""
    assigned = cluster.state().replicas
    await until(lambda: all(cluster[each].holds() for each in assigned))
    await asyncio.sleep(0.1)


@gives("cluster")
def with_brokers(
    scenario: Scenario,
    /,
    *,
    brokers: int = 3,
    first_id: int = 1,
    seed: int = 1,
    directories: Sequence[str] = (DIRECTORY,),
    **settings: object,
) -> None:
    """Brokers without a topic. ``settings``: of all nodes, by key with underscores for dots."""
    cluster = ReplicaCluster(
        brokers=brokers, first_id=first_id, seed=seed, directories=directories, **settings
    )
    cluster.run(scenario)


@gives("cluster")
def with_topic(
    scenario: Scenario,
    /,
    *assignments: tuple[int, ...],
    brokers: int = 3,
    first_id: int = 1,
    seed: int = 1,
    directories: Sequence[str] = (DIRECTORY,),
    min_insync: int | None = None,
    settings: Mapping[str, Any] | None = None,
    **configs: str,
) -> None:
    """Brokers with a topic. ``assignments``: of its partitions; by default it has one on all
    brokers. ``settings``: of all nodes. ``configs``: of the topic. Both are by key with underscores
    for dots."""

    async def whole(cluster: ReplicaCluster) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        replicas = assignments or (tuple(cluster.nodes),)
        least = min(brokers, 2) if min_insync is None else min_insync
        cluster.create_topic(*replicas, configs=named, min_insync=least)
        await settled(cluster)
        await scenario(cluster)

    options: dict[str, Any] = {"brokers": brokers, "first_id": first_id, "seed": seed}
    with_brokers.run(whole, directories=directories, **options, **(settings or {}))


async def write_apart(cluster: ReplicaCluster, node: Node, count: int) -> None:
    """Write to a leader that no replica follows any more."""
    for _ in range(count):
        await node.produce(acks=1)
