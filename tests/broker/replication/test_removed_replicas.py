"""Replicas that are removed from a broker while one of their operations waits for the disk."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.replication import housekeeping
from broker.replication.deletion import DeletionResult
from broker.replication.replica import ReplicaState
from stele.errors import ErrorCode
from stele.wire.v1 import metadata_pb2 as pb
from storage.log_types import LogView
from storage.retention import retained_from
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until

LOG = "/data/orders-0/00000000000000000000.log"


def move(cluster: ReplicaCluster, *replicas: int) -> None:
    """Assign the partition to these brokers. The first one leads."""
    change = pb.PartitionChangeRecord(
        topic_id=P0.topic_id,
        partition=P0.partition,
        replicas=pb.PartitionChangeRecord.Nodes(ids=replicas),
        isr=pb.PartitionChangeRecord.Nodes(ids=replicas),
        leader=replicas[0],
    )
    cluster.commit(pb.MetadataRecord(partition_change=change))


@with_topic
async def test_a_replica_that_is_removed_says_so(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    replica = cluster[1].replica()
    log = replica.log
    assert (replica.uses(log), replica.refusal) == (True, ErrorCode.NONE)
    cluster.delete_topic()
    await until(lambda: not cluster[1].holds())
    assert replica.state is ReplicaState.REMOVED
    assert (replica.uses(log), replica.refusal) == (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@with_topic
async def test_a_replica_that_comes_back_is_not_taken_for_the_one_that_was_removed(
    cluster: ReplicaCluster,
) -> None:
    for _ in range(3):
        await cluster[1].produce(make_batch(size=300))
    cluster[1].disk.spoil(LOG, 100)
    cluster[1].disk.faults.sync_s = (3.0, 3.0)
    assert (await cluster[1].fetch(0, max_wait_ms=500)).error is ErrorCode.NONE
    before = cluster[1].replica()
    move(cluster, 2, 3)
    await until(lambda: not cluster[1].holds())
    move(cluster, 2, 3, 1)
    await until(cluster[1].holds)
    await asyncio.sleep(10)  # of virtual time: the device has given the sector up
    assert cluster[1].replica() is not before
    assert cluster[1].replica().state is ReplicaState.ONLINE
    assert cluster[1].corrupt == []


@with_topic
async def test_a_deletion_of_records_ends_with_the_replica(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    await until(lambda: cluster[1].replica().machine.high_watermark == 1)
    cluster[1].disk.faults.sync_s = (3.0, 3.0)
    deleting = asyncio.ensure_future(cluster[1].delete(1, timeout_ms=30_000))
    await asyncio.sleep(0.1)
    cluster.delete_topic()
    assert await asyncio.wait_for(deleting, 20) == DeletionResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@with_topic(segment_bytes="1024", retention_bytes="1024")
async def test_retention_lets_go_of_a_replica_whose_log_cannot_be_deleted_yet(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        await cluster[1].produce(make_batch(size=600))
    await until(lambda: cluster[1].replica().machine.high_watermark == 6)
    log, disk = cluster[1].replica().log, cluster[1].process.world.disk
    rename = disk.rename
    looked: list[int] = []

    def refuse(source: str, target: str) -> None:
        if source == "/data/orders-0":
            raise OSError(errno.ENOMEM, "Cannot allocate memory", source)
        rename(source, target)

    async def look_long(looked_at: LogView, high_watermark: int, now_ms: int) -> int:
        start_offset = await retained_from(looked_at, high_watermark, now_ms)
        if looked_at is log:
            cluster.delete_topic()
            await asyncio.sleep(1)
            looked.append(start_offset)
        return start_offset

    disk.rename = refuse  # type: ignore[method-assign]
    monkeypatch.setattr(housekeeping, "retained_from", look_long)
    interval_s = cluster.config.log_retention_check_interval_ms / 1000
    await until(lambda: bool(looked), within_s=interval_s + 5)
    await asyncio.sleep(1)
    assert not cluster[1].holds()
    assert looked[0] > 0
    assert (log.offline, log.start_offset) == (None, 0)
    disk.rename = rename  # type: ignore[method-assign]
    await until(lambda: not cluster[1].directory.logs)
