"""Replicas that cannot be read in part, and files without a handle: which replicas are given up."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.replication.replica import ReplicaState
from broker.replication.types import OffsetQuery
from stele.errors import ErrorCode
from stele.ids import PartitionId
from storage.checkpoints import CORRUPT_FILE
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import ends, with_brokers, with_topic
from tests.support.timing import until
from world.disk import File

LOG = "/data/orders-0/00000000000000000000.log"


@pytest.mark.parametrize("sync_s", [(0.001, 0.002), (3.0, 3.0)], ids=["fast", "slower than fetch"])
@with_topic
async def test_a_leader_with_an_unreadable_sector_gives_up_and_is_rebuilt(
    cluster: ReplicaCluster, sync_s: tuple[float, float]
) -> None:
    """A device tries to read a sector for seconds before it fails, longer than a fetch waits."""

    for _ in range(3):
        await cluster[1].produce(make_batch(size=300))
    cluster[1].disk.spoil(LOG, 100)
    cluster[1].disk.faults.sync_s = sync_s
    answers = []
    for _ in range(12):
        answers.append((await cluster[1].fetch(0, max_wait_ms=500)).error)
        if answers[-1] is not ErrorCode.NONE:
            break
    assert answers[-1] is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].corrupt == [P0]
    assert cluster[1].failed_directories == []
    cluster[1].disk.faults.sync_s = (0.001, 0.002)
    cluster.change(leader=2, isr=(2, 3))
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 1) == [3]
    cluster.change(leader=1)
    await until(lambda: cluster[1].replica().machine.is_leader)
    assert len((await cluster[1].fetch(0)).records) == 1


@with_topic((1,), min_insync=1)
async def test_the_only_replica_serves_what_can_be_read(cluster: ReplicaCluster) -> None:
    for _ in range(3):
        await cluster[1].produce(make_batch(size=6000))
    cluster[1].disk.spoil(LOG, 100)
    assert (await cluster[1].fetch(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert len((await cluster[1].fetch(2)).records) == 1  # found by the index
    assert (await cluster[1].produce()).error is ErrorCode.NONE
    assert cluster[1].corrupt == []


@with_topic
async def test_a_search_by_time_that_meets_an_unreadable_sector_is_answered(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce(make_batch(size=300))
    cluster[1].disk.spoil(LOG, 100)
    [result] = await cluster[1].process.run(
        cluster[1].manager.offsets.list_offsets([OffsetQuery(P0, 0)])
    )
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].corrupt == [P0]


@with_topic
async def test_a_follower_that_cannot_read_what_it_is_to_cut_is_rebuilt(
    cluster: ReplicaCluster,
) -> None:
    for _ in range(2):
        await cluster[1].produce(make_batch(size=300))
    await until(lambda: ends(cluster, 3) == [2])
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await cluster[1].produce(make_batch(size=300), acks=1)
    cluster[1].disk.spoil(LOG, 100)
    cluster.change(leader=2, isr=(1, 2, 3))
    await cluster[2].produce(acks=1)
    cluster.simulation.fabric.heal()
    await until(lambda: cluster[1].corrupt == [P0])
    assert cluster[1].replica().state is ReplicaState.CORRUPT
    cluster.change(isr=(2, 3))
    await asyncio.sleep(1)
    assert cluster[1].replica().state is ReplicaState.CORRUPT, (
        "a late fetch of the log that was would pass for one of the new log"
    )
    cluster.change(leader=2)  # a leader epoch in which it has fetched nothing
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 1) == [3]


@with_topic
async def test_a_topic_that_is_deleted_while_a_device_tries_to_read_it_is_just_gone(
    cluster: ReplicaCluster,
) -> None:
    for _ in range(3):
        await cluster[1].produce(make_batch(size=300))
    cluster[1].disk.spoil(LOG, 100)
    cluster[1].disk.faults.sync_s = (3.0, 3.0)
    assert (await cluster[1].fetch(0, max_wait_ms=500)).error is ErrorCode.NONE
    marked = []
    cluster[1].directory.mark_corrupt = (  # type: ignore[method-assign]
        lambda *arguments: marked.append(arguments)
    )
    cluster.delete_topic()
    await until(lambda: not cluster[1].directory.logs)
    await asyncio.sleep(5)  # of virtual time: the device has given the sector up
    assert marked == []
    assert cluster[1].corrupt == []
    assert cluster[1].failed_directories == []


@with_topic
async def test_a_replica_that_cannot_be_rebuilt_at_once_is_rebuilt_later(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce(make_batch(size=300))
    disk = cluster[1].disk
    disk.flip_bit(LOG, 16)
    await cluster[1].fetch(0)
    disk.faults.quota_bytes = disk.used_bytes()
    cluster.change(leader=2, isr=(2, 3))
    await asyncio.sleep(20)
    assert cluster[1].failed_directories == []
    assert cluster[1].replica().machine.state == cluster.state()
    disk.faults.quota_bytes = None
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 1) == [1]


@with_topic(segment_bytes="1024")
async def test_want_of_handles_refuses_and_passes(cluster: ReplicaCluster) -> None:
    faults = cluster[1].disk.faults
    faults.no_handle = 1.0
    errors = {(await cluster[1].produce(make_batch(size=300))).error for _ in range(8)}
    assert errors == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    await asyncio.sleep(15)  # checkpoints and retention, too
    faults.no_handle = 0.0
    assert cluster[1].failed_directories == []
    await asyncio.sleep(1)
    assert (await cluster[1].produce()).error is ErrorCode.NONE
    await until(lambda: cluster.state().isr == (1, 2, 3))


@with_topic
async def test_a_change_that_was_cut_short_costs_the_replica_until_the_next_start_only(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    log = cluster[1].replica().log
    log.availability.failure(OSError(errno.EMFILE, "Too many open files", log.directory))
    assert cluster[1].replica().state is ReplicaState.CORRUPT
    assert not cluster[1].process.world.disk.exists(f"{log.directory}/{CORRUPT_FILE}")
    cluster.change(leader=2, isr=(2, 3))
    await until(lambda: cluster.state().isr == (1, 2, 3))


@with_topic((1,), min_insync=1)
async def test_the_only_replica_is_offline_until_its_restart_if_a_change_was_cut_short(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster[1].produce()
    log = cluster[1].replica().log
    log.availability.failure(OSError(errno.EMFILE, "Too many open files", log.directory))
    assert cluster[1].replica().state is ReplicaState.OFFLINE
    assert cluster[1].corrupt == []  # it has lost nothing that the controller must hear of
    assert (await cluster[1].produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "orders-0 is offline until this broker is restarted" in caplog.text
    cluster[1].kill()
    cluster.fence(1)
    await cluster[1].start()
    cluster.unfence(1)
    cluster.change(leader=1)
    await until(lambda: cluster[1].holds() and cluster[1].replica().machine.is_leader)
    assert len((await cluster[1].fetch(0)).records) == 1
    assert (await cluster[1].produce()).error is ErrorCode.NONE


@with_brokers
async def test_a_topic_that_is_deleted_before_its_log_could_be_made_leaves_no_directory(
    cluster: ReplicaCluster,
) -> None:
    disk = cluster[1].process.world.disk
    open_file = disk.open

    def refuse(path: str, *, create: bool = False) -> File:
        if path.endswith(".log"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return open_file(path, create=create)

    disk.open = refuse  # type: ignore[method-assign]
    cluster.create_topic((1, 2, 3))
    await asyncio.sleep(5)
    assert disk.exists("/data/orders-0")
    cluster.delete_topic()
    await asyncio.sleep(1)
    assert not disk.exists("/data/orders-0")


@with_topic
async def test_a_topic_that_cannot_be_deleted_at_once_is_deleted_later(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    disk = cluster[1].process.world.disk
    rename = disk.rename

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", source)

    disk.rename = refuse  # type: ignore[method-assign]
    cluster.delete_topic()
    await asyncio.sleep(1)
    assert cluster[1].failed_directories == []
    assert cluster[1].directory.logs
    disk.rename = rename  # type: ignore[method-assign]
    await until(lambda: not cluster[1].directory.logs)


@with_topic
async def test_a_topic_made_anew_does_not_get_the_log_that_could_not_be_deleted(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    disk = cluster[1].process.world.disk
    rename = disk.rename

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", source)

    disk.rename = refuse  # type: ignore[method-assign]
    cluster.delete_topic()
    await until(lambda: not cluster[1].holds())
    assert cluster[1].directory.logs
    disk.rename = rename  # type: ignore[method-assign]
    anew = PartitionId(b"orders-made-anew", 0)
    cluster.create_topic((1, 2, 3), topic_id=anew.topic_id)
    await until(lambda: cluster[1].holds(anew))
    assert cluster[1].replica(anew).log.end_offset == 0
    assert (await cluster[1].produce(partition=anew)).base_offset == 0
    await asyncio.sleep(30)  # the deletion is tried again
    assert cluster[1].replica(anew).log.end_offset == 1
