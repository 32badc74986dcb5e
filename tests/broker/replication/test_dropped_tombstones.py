"""Replicas that were away while their leader dropped tombstones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from stele.errors import ApiError, ErrorCode
from stele.wire.batch import decode
from storage.directory import LogDirectory
from tests.broker.replication.test_cleaner import read_all
from tests.support.compaction import keyed_batch, last_values
from tests.support.replica_cluster import Node, ReplicaCluster
from tests.support.replication import settled, with_brokers
from tests.support.timing import until

RETENTION_S = 3600
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": str(RETENTION_S * 1000),
}


async def put(node: Node, key: bytes, value: bytes | None) -> None:
    now_ms = node.process.world.clock.time_ms()
    result = await node.produce(keyed_batch([(key, value)], timestamp_ms=now_ms))
    assert result.error is ErrorCode.NONE, result


async def put_others(node: Node, count: int) -> None:
    for number in range(count):
        await put(node, b"other%d" % (number % 3), b"v%d" % number)


def holds(node: Node, key: bytes) -> bool:
    """Whether a log has any record of the key, be it a tombstone."""
    log = node.replica().log
    return any(
        record.key == key for _, batch in log.batches_now(0) for record in decode(bytes(batch))
    )


async def delete_while_away(
    cluster: ReplicaCluster, away: int, replicas: Sequence[int] = (1, 2, 3)
) -> None:
    """A broker misses the tombstone of a key that it has a value of."""
    cluster.create_topic(replicas, configs=CONFIGS, min_insync=1)
    await settled(cluster)
    await put(cluster[1], b"doomed", b"a value")
    await until(lambda: holds(cluster[away], b"doomed"))
    await asyncio.sleep(1)
    cluster[away].kill()
    cluster.fence(away)
    await put(cluster[1], b"doomed", None)
    await put_others(cluster[1], 40)


async def pass_hours(node: Node, hours: int) -> None:
    for _ in range(hours):
        await put_others(node, 12)
        await asyncio.sleep(RETENTION_S)


async def come_back(cluster: ReplicaCluster, broker_id: int) -> None:
    await cluster[broker_id].start()
    cluster.register(cluster[broker_id])
    await until(cluster[broker_id].holds)
    await until(lambda: broker_id in cluster.state().isr)


async def lead(cluster: ReplicaCluster, broker_id: int) -> None:
    cluster.change(leader=broker_id)
    await until(lambda: cluster[broker_id].replica().machine.is_leader)
    await asyncio.sleep(5)


def started_anew(node: Node) -> bool:
    """Whether this process has deleted what its log held at the start."""
    return node.replica().log.truncation_generation > 0


for_hours = with_brokers(log_cleaner_backoff_ms=60_000, log_retention_check_interval_ms=3_600_000)


@for_hours
async def test_a_deleted_key_does_not_come_back_with_a_replica_that_was_away(
    cluster: ReplicaCluster,
) -> None:
    await delete_while_away(cluster, 3)
    await pass_hours(cluster[1], 3)
    assert not holds(cluster[1], b"doomed"), "the leader has dropped the tombstone"
    await come_back(cluster, 3)
    assert started_anew(cluster[3])
    await lead(cluster, 3)
    assert b"doomed" not in last_values(await read_all(cluster[3]))


@for_hours
async def test_a_dropped_end_that_the_disk_refuses_is_written_later(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the replica tells the leader of nothing above it."""
    await delete_while_away(cluster, 3)
    await pass_hours(cluster[1], 3)
    persist = LogDirectory.persist_start_offsets
    refusals = 0

    async def refused_twice(directory: LogDirectory) -> None:
        nonlocal refusals
        if refusals < 2 and directory is cluster[3].replica().directory:
            refusals += 1
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")
        await persist(directory)

    monkeypatch.setattr(LogDirectory, "persist_start_offsets", refused_twice)
    await come_back(cluster, 3)
    assert refusals == 2
    log = cluster[3].replica().log
    assert cluster[3].replica().durable_dropped_end == log.dropped_end > 0


@for_hours
async def test_a_replica_that_is_back_before_tombstones_go_reads_on(
    cluster: ReplicaCluster,
) -> None:
    await delete_while_away(cluster, 3)
    await asyncio.sleep(RETENTION_S / 2)
    await come_back(cluster, 3)
    assert not started_anew(cluster[3])
    await lead(cluster, 3)
    assert b"doomed" not in last_values(await read_all(cluster[3]))


@for_hours
async def test_a_replica_that_was_filled_without_tombstones_sends_others_back_as_a_leader(
    cluster: ReplicaCluster,
) -> None:
    await delete_while_away(cluster, 3, (1, 3))
    await pass_hours(cluster[1], 3)
    cluster.change(replicas=(1, 2, 3))
    await until(lambda: 2 in cluster.state().isr)
    dropped_end = cluster[1].replica().log.dropped_end
    assert cluster[2].replica().log.dropped_end == dropped_end > 0
    # Broker 2 has not compacted its log itself, and forgets what it has in memory.
    cluster[2].kill()
    cluster.fence(2)
    await come_back(cluster, 2)
    await lead(cluster, 2)
    assert cluster[2].replica().log.dropped_end == dropped_end
    await come_back(cluster, 3)
    assert started_anew(cluster[3])
    await lead(cluster, 3)
    assert b"doomed" not in last_values(await read_all(cluster[3]))
