"""A running quorum moves from one listener to another, replica by replica, and never stops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from runtime.quorum.config import QuorumVoter
from stele.security.client_security import PLAINTEXT
from tests.support.raft_quorum import PORT, QuorumCluster, QuorumNode, with_quorum

PORTS = {"OLD": PORT, "NEW": PORT + 1}


def settings(node: QuorumNode, *names: str) -> dict[str, Any]:
    """A replica's configuration with these listeners, as controller.listener.names has them."""
    first = PORTS[names[0]]
    found: dict[str, Any] = {
        "voters": tuple(QuorumVoter(each, f"node{each}", first) for each in (1, 2, 3)),
        "controllers": dict.fromkeys(names, PLAINTEXT),
    }
    if node.id <= 3:
        listeners = [f"{name}://{node.machine}:{PORTS[name]}" for name in names]
        found["endpoint"] = "+".join(listeners)
    return found


def steps(cluster: QuorumCluster) -> Iterator[tuple[QuorumNode, tuple[str, ...]]]:
    """Each restart. Voters have both listeners before anybody uses the new one."""
    for names in [("OLD", "NEW"), ("NEW", "OLD"), ("NEW",)]:
        for node in sorted(cluster.replicas.values(), key=lambda each: -each.id):
            yield node, names


async def commits(cluster: QuorumCluster, value: bytes) -> None:
    """Some leader commits a record, and whoever runs learns of it."""
    leader = await cluster.leader()
    await leader.propose(value)
    await cluster.until_equal()


def recorded(cluster: QuorumCluster) -> set[str]:
    """The listeners in the voters' record of every replica, without the machine's name."""
    names = set()
    for node in cluster.replicas.values():
        for voter in node.quorum.voters.voters:
            names.add(voter.endpoint.replace(f"node{voter.id}", "node"))
    return names


def used(cluster: QuorumCluster) -> set[str]:
    """The listeners by which the replicas reach voters."""
    found = [node.quorum.endpoint(each) for node in cluster.replicas.values() for each in (1, 2, 3)]
    return {each.name for each in found if each is not None}


async def move(cluster: QuorumCluster) -> None:
    for node in cluster.replicas.values():
        await node.start(**settings(node, "OLD"))
    await commits(cluster, b"before")
    for number, (node, names) in enumerate(steps(cluster)):
        await node.stop()
        await commits(cluster, b"while %d is down" % number)
        await node.start(**settings(node, *names))
        await commits(cluster, b"after %d" % number)
        if node.id == 1:  # all have been restarted
            told = "+".join(f"{name}://node:{PORTS[name]}" for name in names)
            await cluster.until(partial(_equal, cluster, {told}))
            assert used(cluster) == {names[0]}


def _equal(cluster: QuorumCluster, expected: set[str]) -> bool:
    return recorded(cluster) == expected


@pytest.mark.parametrize("seed", range(3))
def test_a_quorum_moves_without_a_stop(seed: int) -> None:
    cluster = QuorumCluster(seed, voters=3, observers=1)
    cluster.simulation.run(move(cluster))


@with_quorum(voters=3, observers=1)
async def test_a_replica_that_prefers_a_new_listener_reaches_replicas_without_it(
    cluster: QuorumCluster,
) -> None:
    for node in cluster.replicas.values():
        await node.start(**settings(node, "OLD"))
    await commits(cluster, b"before")
    for node_id in (4, 3):
        node = cluster.replicas[node_id]
        await node.stop()
        await node.start(**settings(node, "NEW", "OLD"))
        await commits(cluster, b"after %d" % node_id)
    expected = {f"OLD://node:{PORT}", f"NEW://node:{PORT + 1}+OLD://node:{PORT}"}
    await cluster.until(partial(_equal, cluster, expected))
    leader = await cluster.leader()
    await leader.stop()
    await commits(cluster, b"by the next leader")
