"""Replicas on disks that fill up, fail, and lose or damage data."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping

import pytest

from broker.replication import relaxed_flush
from broker.replication.relaxed_flush import RelaxedFlush
from broker.replication.replica import ReplicaState
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.wire.v1 import metadata_pb2 as pb
from storage.checkpoints import encode_offsets
from storage.errors import StorageError
from tests.support.batches import make_batch
from tests.support.directory_moves import move
from tests.support.replica_cluster import P0, TOPIC, ReplicaCluster
from tests.support.replication import ends, with_brokers, with_topic
from tests.support.timing import until
from world.disk import File

TOPIC_ID_FILE = "/data/orders-0/partition.metadata"


@with_topic
async def test_a_full_disk_refuses_and_recovers_when_there_is_space_again(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    disk = cluster[1].disk
    disk.faults.quota_bytes = disk.used_bytes() + 100
    big = make_batch(size=500)
    assert (await cluster[1].produce(big)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert ends(cluster, 1) == [1]
    assert len((await cluster[1].fetch(0)).records) == 1
    disk.faults.quota_bytes = None
    result = await cluster[1].produce(big)
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 1)


@with_topic
async def test_a_follower_with_a_full_disk_catches_up_when_there_is_space_again(
    cluster: ReplicaCluster,
) -> None:
    disk = cluster[3].disk
    disk.faults.quota_bytes = disk.used_bytes() + 10
    producing = asyncio.ensure_future(cluster[1].produce())
    await asyncio.sleep(3)
    assert not producing.done()
    disk.faults.quota_bytes = None
    assert (await producing).error is ErrorCode.NONE
    assert ends(cluster, 3) == [1]


@with_topic
async def test_a_failed_sync_takes_the_directory_offline(cluster: ReplicaCluster) -> None:
    cluster[1].disk.faults.failing_sync = True
    result = await cluster[1].produce()
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].failed_directories == ["/data"]
    assert (await cluster[1].produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await cluster[1].fetch(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].manager.measures.counters().offline_replicas == 1
    cluster.fence(1)
    await until(lambda: cluster[2].replica().machine.is_leader)
    assert (await cluster[2].produce()).error is ErrorCode.NONE


@with_topic
async def test_a_corrupt_log_is_reported_not_served_and_fetched_anew(
    cluster: ReplicaCluster,
) -> None:
    for _ in range(3):
        await cluster[1].produce(make_batch(size=300))
    await asyncio.sleep(6)  # the high watermark is checkpointed
    node = cluster[2]
    node.kill()
    cluster.fence(2)
    node.disk.flip_bit("/data/orders-0/00000000000000000000.log", 100)
    await node.start()
    assert node.manager.reports.corrupt() == [P0]
    cluster.register(node)
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert node.manager.reports.corrupt() == []
    assert ends(cluster, 2) == [3]


@with_topic
async def test_a_corrupt_log_that_has_lost_its_topic_id_is_reported_when_that_is_known(
    cluster: ReplicaCluster,
) -> None:
    for _ in range(3):
        await cluster[1].produce(make_batch(size=300))
    await asyncio.sleep(6)
    node = cluster[2]
    node.kill()
    cluster.fence(2)
    node.disk.flip_bit("/data/orders-0/00000000000000000000.log", 100)
    node.disk.lose(TOPIC_ID_FILE)
    await node.start()
    cluster.tell(node)
    await until(lambda: node.corrupt == [P0])
    cluster.register(node)
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 2) == [3]


@with_topic
async def test_a_sound_log_that_has_lost_its_topic_id_is_corrupt(cluster: ReplicaCluster) -> None:
    for _ in range(3):
        await cluster[1].produce(make_batch(size=300))
    await asyncio.sleep(6)  # the high watermark is checkpointed
    node = cluster[2]
    node.kill()
    cluster.fence(2)
    node.disk.lose(TOPIC_ID_FILE)
    await node.start()
    cluster.tell(node)
    await until(lambda: node.corrupt == [P0])
    cluster.register(node)
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 2) == [3]
    assert node.disk.find(TOPIC_ID_FILE) is not None
    assert [each for each in node.disk.names("/data") if each.endswith("-corrupt")]


@pytest.mark.parametrize("is_checkpointed", [True, False])
@with_topic
async def test_a_log_without_topic_id_never_passes_for_the_log_of_a_topic_made_anew(
    cluster: ReplicaCluster, is_checkpointed: bool
) -> None:
    anew = PartitionId(b"orders, made anew"[:16], 0)

    for _ in range(3):
        await cluster[1].produce(make_batch(size=300))
    if is_checkpointed:
        await asyncio.sleep(6)
    node = cluster[2]
    node.kill()
    cluster.fence(2)
    node.disk.lose(TOPIC_ID_FILE)
    cluster.delete_topic()
    cluster.create_topic((1, 2, 3), topic_id=anew.topic_id)
    await until(lambda: cluster[1].holds(anew) and cluster[3].holds(anew))
    await node.start()
    cluster.tell(node)
    await until(lambda: node.holds(anew))
    if is_checkpointed:
        assert node.corrupt == [anew]
        assert node.replica(anew).state is ReplicaState.CORRUPT
    else:
        assert node.corrupt == []
        assert node.replica(anew).log.end_offset == 0
    cluster.register(node)
    result = await cluster[1].produce(make_batch(size=200), partition=anew)
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
    await until(lambda: cluster.state(anew).isr == (1, 2, 3))
    log = node.replica(anew).log
    assert (log.topic_id, log.end_offset) == (anew.topic_id, 1)


@with_topic
async def test_a_log_without_topic_id_goes_with_the_last_topic_of_its_name(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce(make_batch(size=300))
    node = cluster[2]
    node.kill()
    cluster.fence(2)
    node.disk.lose(TOPIC_ID_FILE)
    cluster.delete_topic()
    await node.start()
    assert node.directory.half_made
    cluster.register(node)
    await until(lambda: node.disk.find("/data/orders-0") is None)
    assert not node.directory.half_made


@with_brokers(brokers=1, directories=("/data", "/other"))
async def test_a_log_that_was_begun_in_a_directory_is_made_there(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each of two directories has a log of the name after a restart."""
    node = cluster[1]
    disk = node.process.world.disk
    open_file = disk.open

    def refuse(path: str, *, create: bool = False) -> File:
        if path.startswith("/data/orders-0/") and path.endswith(".log"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return open_file(path, create=create)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", refuse)
        cluster.create_topic(*[(1,)] * 4, min_insync=1)
        await until(lambda: node.holds(P0._replace(partition=3)))
    key = TopicPartition(TOPIC, 0)
    data, other = node.directories
    assert key in data.half_made
    assert (len(data.logs), len(other.logs)) == (2, 1), "it would be made in the other one"
    assert await move(node, "/other", key) is ErrorCode.REPLICA_NOT_AVAILABLE
    await until(node.holds, within_s=60)
    assert (key in data.logs, key in other.logs) == (True, False)


@with_topic
async def test_a_leader_that_finds_corruption_gives_the_partition_up(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce(make_batch(size=300))
    cluster[1].disk.flip_bit("/data/orders-0/00000000000000000000.log", 16)  # the magic byte
    assert (await cluster[1].fetch(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].corrupt == [P0]
    assert (await cluster[1].produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
    cluster.change(leader=2, isr=(2, 3))
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 1) == [1]
    assert len((await cluster[2].fetch(0)).records) == 1


@with_topic((1,), min_insync=1)
async def test_the_only_copy_is_never_thrown_away(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    cluster[1].disk.flip_bit("/data/orders-0/00000000000000000000.log", 16)
    await cluster[1].fetch(0)
    cluster.change(leader=-1, isr=())
    await asyncio.sleep(1)
    assert cluster[1].manager.reports.corrupt() == [P0]
    assert (await cluster[1].fetch(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@with_topic
async def test_a_power_loss_of_everybody_loses_nothing_acknowledged(
    cluster: ReplicaCluster,
) -> None:
    for _ in range(5):
        await cluster[1].produce()
    asyncio.ensure_future(cluster[1].produce()).cancel()
    for name in ("b1", "b2", "b3"):
        cluster.simulation.power_off(name)
    for node in cluster.nodes.values():
        cluster.simulation.power_on(node.name)
        await node.start()
        cluster.register(node)
    await until(lambda: cluster.state().isr == (1, 2, 3))
    result = await cluster[cluster.state().leader].fetch(0)
    assert sum(map(len, result.records)) >= 5 * len(make_batch())


@with_topic(flush_messages="1000")
async def test_an_unclean_end_of_a_relaxed_replica_is_reported(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    node = cluster[2]
    await node.stop()
    await node.start()
    assert node.manager.reports.unsynced() == []
    node.kill()
    await node.start()
    assert node.manager.reports.unsynced() == [P0]
    cluster.register(node)
    await until(node.holds)
    assert node.manager.reports.unsynced() == []


@with_topic(flush_messages="1000")
async def test_a_stop_before_the_report_of_an_unclean_end_does_not_hide_it(
    cluster: ReplicaCluster,
) -> None:
    for _ in range(3):
        await cluster[1].produce()
    node, machine = cluster[2], cluster[2].name
    assert ends(cluster, 2) == [3]
    cluster.fence(2)
    cluster.simulation.power_off(machine)
    cluster.simulation.power_on(machine)
    await node.start()
    log = node.directory.get(TOPIC, 0)
    assert log is not None
    assert log.end_offset < 3  # what it acknowledged was in its page cache
    for _ in range(2):
        await node.stop()
        await node.start()
        assert node.manager.reports.unsynced() == [P0]
    cluster.register(node)
    await until(node.holds)
    await node.stop()
    await node.start()
    assert node.manager.reports.unsynced() == []
    assert node.directory.clean_shutdown


@with_topic
async def test_an_unclean_end_of_a_strict_replica_is_not_worth_a_word(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    cluster[2].kill()
    await cluster[2].start()
    assert cluster[2].manager.reports.unsynced() == []


@with_topic
async def test_a_corrupt_replica_waits_until_nobody_counts_on_it(cluster: ReplicaCluster) -> None:
    await cluster[1].produce(make_batch(size=300))
    cluster[1].disk.flip_bit("/data/orders-0/00000000000000000000.log", 16)
    await cluster[1].fetch(0)
    cluster.change(leader=2)  # still in the ISR
    await asyncio.sleep(1)
    assert cluster[1].manager.reports.corrupt() == [P0]
    cluster.change(isr=(2, 3))
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert cluster[1].manager.reports.corrupt() == []
    assert ends(cluster, 1) == [1]


@with_topic
async def test_a_minimum_is_gone_by_though_the_rest_of_a_configuration_cannot_be(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller uses it. A leader that did not would commit what it must not."""

    def fails(self: RelaxedFlush, topic: str, partition: int) -> None:
        raise StorageError("no space left on the device")

    monkeypatch.setattr(RelaxedFlush, "add", fails)
    cluster.commit(
        *(
            pb.MetadataRecord(
                config=pb.ConfigRecord(
                    resource_type=pb.TOPIC, resource_name="orders", name=name, value=value
                )
            )
            for name, value in (("flush.messages", "1000"), ("min.insync.replicas", "3"))
        )
    )
    leading = cluster[1].replica()
    await until(lambda: leading.machine.min_insync == 3)
    assert leading.config.flush_messages == 1


def test_one_change_of_the_metadata_writes_down_once_which_replicas_are_relaxed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each write waits for the device twice on the event loop."""
    written: list[int] = []

    def counted(relaxed: Mapping[TopicPartition, int]) -> bytes:
        written.append(len(relaxed))
        return encode_offsets(relaxed)

    monkeypatch.setattr(relaxed_flush, "encode_offsets", counted)
    partitions = 12

    async def scenario(cluster: ReplicaCluster) -> None:
        assert written == [partitions] * 3  # on three brokers
        written.clear()
        cluster.delete_topic()
        await until(lambda: len(written) == 3)
        assert written == [0] * 3

    with_topic.run(scenario, *([(1, 2, 3)] * partitions), flush_messages="1000")


@with_topic(flush_messages="1000")
async def test_a_replica_that_is_relaxed_again_before_the_file_is_written_stays_in_it(
    cluster: ReplicaCluster,
) -> None:
    directory = cluster[1].replica().directory
    noted = RelaxedFlush(cluster[1].process.world.disk, directory)
    assert noted.lossy == [P0]  # it was not shut down cleanly
    noted.discard("orders", 0)
    noted.add("orders", 0)
    noted.settle()
    assert RelaxedFlush(cluster[1].process.world.disk, directory).lossy == [P0]
    noted.discard("orders", 0)
    assert RelaxedFlush(cluster[1].process.world.disk, directory).lossy == [P0]
    noted.settle()
    assert RelaxedFlush(cluster[1].process.world.disk, directory).lossy == []


@with_topic
async def test_a_broker_whose_only_directory_failed_takes_no_new_replica_and_goes_on(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    node.disk.faults.failing_sync = True
    await node.produce()
    assert node.failed_directories == ["/data"]
    another = P0._replace(partition=1)
    partition = pb.PartitionRecord(
        topic_id=P0.topic_id, partition=1, replicas=(1, 2, 3), isr=(1, 2, 3), leader=2
    )
    cluster.commit(pb.MetadataRecord(partition=partition))
    await until(lambda: cluster[2].holds(another))
    assert not node.holds(another)
    assert node.manager.measures.counters().offline_replicas == 2
    cluster.change(leader=2, isr=(2, 3))  # and it hears of what comes afterwards
    await until(lambda: node.replica().machine.leader_epoch == 1)
    assert (await node.produce()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.change(another, isr=(2, 3))
    assert (await cluster[2].produce(partition=another)).error is ErrorCode.NONE
