"""A broker's descriptions of its directories and of the producers of its replicas."""

from __future__ import annotations

import errno

import pytest

from broker.replication import descriptions
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, TopicPartition
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until


@with_topic
async def test_directories_with_the_sizes_of_their_logs(cluster: ReplicaCluster) -> None:
    batch = make_batch(size=300)
    size = len(batch)
    await cluster[1].produce(batch)
    node = cluster[1]
    (directory,) = await node.manager.descriptions.directories(None)
    assert (directory.path, directory.error) == ("/data", ErrorCode.NONE)
    (replica,) = directory.replicas
    assert (replica.topic, replica.partition) == ("orders", 0)
    assert (replica.size_bytes, replica.offset_lag) == (size, 0)
    assert directory.total_bytes - directory.usable_bytes == node.disk.used_bytes()
    (directory,) = await node.manager.descriptions.directories({("orders", 1)})
    assert directory.replicas == []
    node.disk.faults.failing_sync = True
    await node.produce()
    (directory,) = await node.manager.descriptions.directories(None)
    assert directory.error is ErrorCode.KAFKA_STORAGE_ERROR
    (lost,) = directory.replicas
    assert (lost.topic, lost.partition, lost.size_bytes, lost.offset_lag) == ("orders", 0, -1, -1)
    with pytest.raises(ApiError) as refused:
        node.manager.descriptions.producers(P0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@with_topic
async def test_high_watermarks_of_what_is_led(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    name = TopicPartition("orders", 0)
    assert [*cluster[1].manager.measures.high_watermarks()] == [
        (name, cluster[1].replica().log.end_offset)
    ]
    assert [*cluster[2].manager.measures.high_watermarks()] == []


@with_topic
async def test_what_is_being_deleted_is_not_described(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka: neither a replica that is removed during the description, nor one whose files
    could not be deleted yet."""
    monkeypatch.setattr(descriptions, "TURN_REPLICAS", 1)

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", source)

    await cluster[1].produce()
    node = cluster[1]
    monkeypatch.setattr(node.process.world.disk, "rename", refuse)
    under_way = node.manager.descriptions.directories(None)
    under_way.send(None)  # it has the replicas, and lets others run before it looks at them
    cluster.delete_topic()
    await until(lambda: not node.holds())
    with pytest.raises(StopIteration) as ended:
        under_way.send(None)
    for (directory,) in (ended.value.value, await node.manager.descriptions.directories(None)):
        assert (directory.error, directory.replicas) == (ErrorCode.NONE, [])
    assert list(node.directory.logs) == [("orders", 0)], "which is still to be deleted"


@with_topic
async def test_producers_of_leader_and_follower(cluster: ReplicaCluster) -> None:
    await cluster[1].produce(make_batch(producer=(7, 1, 0)))
    for node in (cluster[1], cluster[2]):
        (entry,) = node.manager.descriptions.producers(P0)
        assert (entry.producer_id, entry.epoch, entry.last_sequence) == (7, 1, 0)
    with pytest.raises(ApiError) as refused:
        cluster[1].manager.descriptions.producers(PartitionId(P0.topic_id, 9))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
