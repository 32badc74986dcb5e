"""What a replica is when its log cannot be worked with, and when it begins anew."""

from __future__ import annotations

import pytest

from broker.replication.replica import Replica, ReplicaState
from storage.errors import CorruptLogError
from tests.support.replica_cluster import Node, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until


async def find_corrupt(node: Node) -> None:
    replica = node.replica()
    error = CorruptLogError(replica.log.directory, position=0, offset=0, reason="a test says so")

    async def find() -> None:
        node.manager.corrupt(replica, replica.log, error)

    await node.process.run(find())


def has_log(replica: Replica) -> bool:
    return hasattr(replica, "log")


@with_topic
async def test_a_replica_has_a_log_exactly_while_it_is_online(cluster: ReplicaCluster) -> None:
    """Else somebody would append to a log that is not the replica's any more."""
    node = cluster[3]
    await cluster[1].produce()
    replica = node.replica()
    await find_corrupt(node)
    assert (replica.state, has_log(replica)) == (ReplicaState.CORRUPT, False)
    cluster.change(isr=(1, 2))
    cluster.change(leader=1)
    await until(lambda: replica.state is ReplicaState.ONLINE)
    assert has_log(replica)
    await find_corrupt(node)
    cluster.delete_topic()  # a replica without a log can be removed, too
    await until(lambda: not node.holds())
    assert (replica.state, has_log(replica)) == (ReplicaState.REMOVED, False)


@with_topic
async def test_a_replica_that_begins_anew_does_so_under_another_tenure(
    cluster: ReplicaCluster,
) -> None:
    """A verdict on the records of the old log says nothing of the new one."""
    node = cluster[3]
    replica = node.replica()
    tenure = replica.tenure
    assert replica.has_tenure(tenure)
    await find_corrupt(node)
    assert not replica.has_tenure(tenure)
    cluster.change(isr=(1, 2))
    cluster.change(leader=1)
    await until(lambda: replica.state is ReplicaState.ONLINE)
    assert not replica.has_tenure(tenure)
    assert replica.has_tenure(replica.tenure)


@with_topic
async def test_nothing_is_fetched_or_synced_for_a_corrupt_replica(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the metadata that take it out of the ISR."""
    node = cluster[3]
    replica = node.replica()
    await find_corrupt(node)
    cluster.change(leader=2)
    await until(lambda: replica.machine.leader == 2)
    synced: list[object] = []
    monkeypatch.setattr(node.directory, "synced_then", lambda logs, then: synced.append(then))
    await cluster[2].produce(acks=1)
    cluster.change(leader=1)
    await until(lambda: replica.machine.leader == 1)
    await cluster[1].produce(acks=1, timeout_ms=2_000)
    await until(lambda: cluster.simulation.now > 5)
    assert synced == []
    assert replica.state is ReplicaState.CORRUPT
