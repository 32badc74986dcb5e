"""Retention of partitions that nobody writes to any more."""

from __future__ import annotations

from broker.replication.types import EARLIEST_TIMESTAMP, OffsetQuery
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import ends, with_topic
from tests.support.timing import until


def test_the_last_records_of_an_idle_partition_are_deleted_everywhere() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leader = cluster[1]
        now_ms = leader.process.world.clock.time_ms()
        await leader.produce(make_batch(3, timestamp_ms=now_ms))
        logs = [cluster[number].replica().log for number in cluster.nodes]
        await until(lambda: all(log.segments.bases == [3] for log in logs), within_s=400)
        assert [log.size_bytes for log in logs] == [0] * len(logs)
        query = OffsetQuery(P0, EARLIEST_TIMESTAMP, -1)
        (earliest,) = await leader.process.run(leader.manager.list_offsets([query]))
        assert earliest.offset == 3
        assert (await leader.produce()).base_offset == 3
        assert ends(cluster, 1) == [4]

    with_topic(scenario, retention_ms="5000")
