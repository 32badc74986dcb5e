"""Retention of partitions that nobody writes to any more, or whose transactions are not decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.replication.types import EARLIEST_TIMESTAMP, OffsetQuery
from stele.errors import ErrorCode
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, Node, ReplicaCluster
from tests.support.replication import ends, with_topic
from tests.support.timing import until


def leads(node: Node) -> Callable[[], bool]:
    return lambda: node.replica().machine.is_leader


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


def test_followers_that_have_everything_keep_it_and_their_producers() -> None:
    """The leader has written nothing in its epoch, so retention deletes the last records of the
    epoch that its followers end in."""

    async def scenario(cluster: ReplicaCluster) -> None:
        now_ms = cluster[1].process.world.clock.time_ms()
        batch = make_batch(3, timestamp_ms=now_ms, producer=(7, 0, 0))
        assert (await cluster[1].produce(bytearray(batch))).base_offset == 0
        cluster.change(leader=2)
        logs = [cluster[number].replica().log for number in cluster.nodes]
        await until(lambda: all(log.segments.bases == [3] for log in logs), within_s=400)
        await asyncio.sleep(5)
        assert [log.truncation_generation for log in logs] == [0] * len(logs)
        for leader in (cluster[1], cluster[3]):
            cluster.change(leader=leader.broker_id)
            await until(leads(leader))
            again = await leader.produce(bytearray(batch))
            assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
        assert ends(cluster, 1, 2, 3) == [3, 3, 3]

    with_topic(scenario, retention_ms="5000")
