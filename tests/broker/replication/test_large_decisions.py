"""A decision about more replicas than a broker changes in one turn of the event loop."""

from __future__ import annotations

import asyncio
import errno
from typing import NamedTuple

import pytest

from broker.replication import metadata
from broker.replication.replica import Replica
from metadata.delta import MetadataDelta
from stele.ids import PartitionId
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.replica_cluster import TOPIC, TOPIC_ID, Node, ReplicaCluster
from tests.support.replication import with_brokers
from tests.support.timing import until
from world.disk import File

COUNT = 7
PARTITIONS = [PartitionId(TOPIC_ID, number) for number in range(COUNT)]


@pytest.fixture(autouse=True)
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "REPLICAS_AT_ONCE", 2)


class Seen(NamedTuple):
    leads: bool
    min_insync: int


def look(node: Node) -> list[Seen]:
    def seen(replica: Replica) -> Seen:
        return Seen(replica.machine.is_leader, replica.machine.min_insync)

    return [seen(node.replica(each)) for each in PARTITIONS if node.holds(each)]


async def steps(node: Node, *, stop_after: int = COUNT, pause_s: float = 0.0) -> list[list[Seen]]:
    """Apply what the cluster has decided, each step in a turn of its own, and look after each
    step."""
    delta = MetadataDelta(node.image)
    for offset, record in node.cluster.records:
        if offset > node.image.offset:
            delta.replay(offset, record)
    node.image = delta.apply()
    found = []

    async def apply() -> None:
        for _ in node.manager.apply(delta, node.image):
            found.append(look(node))
            if len(found) == stop_after:
                await node.manager.stop()
            await asyncio.sleep(pause_s)
        found.append(look(node))

    await node.process.run(apply())
    return found


def elect(leader: int) -> list[pb.MetadataRecord]:
    return [
        pb.MetadataRecord(
            partition_change=pb.PartitionChangeRecord(
                topic_id=TOPIC_ID, partition=each.partition, leader=leader
            )
        )
        for each in PARTITIONS
    ]


def require(replicas: int) -> pb.MetadataRecord:
    return pb.MetadataRecord(
        config=pb.ConfigRecord(
            resource_type=pb.ConfigResourceType.TOPIC,
            resource_name=TOPIC,
            name="min.insync.replicas",
            value=str(replicas),
        )
    )


async def begin(cluster: ReplicaCluster) -> Node:
    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    await until(lambda: all(cluster[1].holds(each) for each in PARTITIONS))
    assert look(cluster[1]) == [Seen(True, 2)] * COUNT
    return cluster[1]


@with_brokers
async def test_a_partition_and_its_min_insync_replicas_change_in_one_step(
    cluster: ReplicaCluster,
) -> None:
    node = await begin(cluster)
    cluster.commit(*elect(2), require(3), to=())
    found = await steps(node)
    changed = [each.count(Seen(False, 3)) for each in found]
    assert all(set(each) <= {Seen(True, 2), Seen(False, 3)} for each in found)
    assert changed[:4] == [2, 4, 6, 7]


@with_brokers
async def test_a_configuration_alone_also_takes_steps(cluster: ReplicaCluster) -> None:
    node = await begin(cluster)
    cluster.commit(require(3), to=())
    found = await steps(node)
    assert [each.count(Seen(True, 3)) for each in found] == [2, 4, 6, 7]


@with_brokers
async def test_a_topic_is_deleted_in_steps_before_another_one_is_made(
    cluster: ReplicaCluster,
) -> None:
    node = await begin(cluster)
    cluster.commit(pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=TOPIC_ID)), to=())
    found = await steps(node)
    assert [len(each) for each in found] == [5, 3, 1, 0]


@with_brokers
async def test_logs_of_an_earlier_decision_are_not_made_between_the_steps(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would have the state of the earlier decision and the configuration of the newest."""
    monkeypatch.setattr(metadata, "LOGS_AT_ONCE", 1)
    monkeypatch.setattr(metadata, "REPLICAS_AT_ONCE", 2 * COUNT)

    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    node = cluster[1]
    while not node.holds(PARTITIONS[0]):  # noqa: ASYNC110 - no later than that
        await asyncio.sleep(0)
    assert not node.holds(PARTITIONS[-1])
    monkeypatch.setattr(metadata, "REPLICAS_AT_ONCE", 2)
    cluster.commit(*elect(2), require(3), to=())
    found = await steps(node)
    assert all(set(each) <= {Seen(True, 2), Seen(False, 3)} for each in found)
    await until(lambda: look(node) == [Seen(False, 3)] * COUNT)


@with_brokers
async def test_logs_that_could_not_be_made_are_not_made_between_the_steps(
    cluster: ReplicaCluster,
) -> None:
    """Housekeeping tries again all the while."""
    node = cluster[1]
    disk = node.process.world.disk
    open_file = disk.open

    def refuse(path: str, *, create: bool = False) -> File:
        if path.endswith(".log"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return open_file(path, create=create)

    disk.open = refuse  # type: ignore[method-assign]
    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    await asyncio.sleep(1)
    assert look(node) == []
    disk.open = open_file  # type: ignore[method-assign]
    cluster.commit(*elect(2), require(3), to=())
    pause_s = cluster.config.replica_high_watermark_checkpoint_interval_ms / 1000 + 1
    found = await steps(node, pause_s=pause_s)
    assert [len(each) for each in found][:4] == [2, 4, 6, 7]
    assert [set(each) for each in found[:4]] == [{Seen(False, 3)}] * 4


@with_brokers
async def test_a_broker_that_stops_takes_no_further_step(cluster: ReplicaCluster) -> None:
    node = await begin(cluster)
    cluster.commit(*elect(2), to=())
    found = await steps(node, stop_after=2)
    assert [each.count(Seen(False, 2)) for each in found[:2]] == [2, 4]
    assert len(found) == 3, "two steps, and what a stopped broker has"
