"""What a broker tells of its directories and of the producers of its replicas."""

from __future__ import annotations

import pytest

from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from tests.support.broker import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import with_topic


def test_directories_with_the_sizes_of_their_logs() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        batch = make_batch(value=b"v" * 300)
        size = len(batch)
        await cluster[1].produce(batch)
        node = cluster[1]
        (directory,) = await node.manager.describe_directories(None)
        assert (directory.path, directory.error) == ("/data", ErrorCode.NONE)
        (replica,) = directory.replicas
        assert (replica.topic, replica.partition) == ("orders", 0)
        assert (replica.size_bytes, replica.offset_lag) == (size, 0)
        assert directory.total_bytes - directory.usable_bytes == node.disk.used_bytes()
        (directory,) = await node.manager.describe_directories({("orders", 1)})
        assert directory.replicas == []
        node.disk.faults.failing_sync = True
        await node.produce()
        (directory,) = await node.manager.describe_directories(None)
        assert (directory.error, directory.replicas) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        with pytest.raises(ApiError) as refused:
            node.manager.producers_of(P0)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    with_topic(scenario)


def test_producers_of_leader_and_follower() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce(make_batch(producer_id=7, producer_epoch=1, base_sequence=0))
        for node in (cluster[1], cluster[2]):
            (entry,) = node.manager.producers_of(P0)
            assert (entry.producer_id, entry.epoch, entry.last_sequence) == (7, 1, 0)
        with pytest.raises(ApiError) as refused:
            cluster[1].manager.producers_of(PartitionId(P0.topic_id, 9))
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_topic(scenario)
