"""How much a follower asks for when there is quota again for replicas that had to wait."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from broker.replication.fetcher import PeerFetcher
from broker.replication.follower_throttle import FollowerThrottle
from broker.replication.leader_connection import LeaderConnection
from stele.cluster.kafka_connection import PendingAnswer
from stele.errors import ErrorCode
from stele.wire.kafka.messages import fetch as wire
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import with_topic

PARTITIONS = 6
MAX_BYTES = 5_000


class SilentLeader:
    """Notes how many partitions each request names, and answers none."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def connect(self, broker_id: int) -> LeaderConnection:
        return cast(LeaderConnection, self)

    def fetch(self, request: wire.FetchRequest, answer: PendingAnswer[wire.FetchResponse]) -> None:
        self.asked.append(sum(len(topic.partitions) for topic in request.topics))

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("rate", "asked"), [(100_000, 2), (1_000_000, PARTITIONS)])
@with_topic(*[(2, 1)] * PARTITIONS, brokers=2, settings={"replica_fetch_max_bytes": MAX_BYTES})
async def test_only_as_many_replicas_are_asked_for_as_there_is_quota_for(
    cluster: ReplicaCluster, rate: int, asked: int
) -> None:
    """Each may bring ``replica.fetch.max.bytes``. After 100 ms there is a tenth of the rate."""
    node = cluster[1]
    cluster.refuse = ErrorCode.INELIGIBLE_REPLICA
    for number in range(PARTITIONS):
        cluster.change(P0._replace(partition=number), isr=(2,))
    await asyncio.sleep(0.1)

    async def inside() -> None:
        clock = node.process.world.clock
        throttle = FollowerThrottle(clock, broker_id=1, count_bytes=lambda _: None)
        throttle.set_rate(0)
        leader = SilentLeader()
        fetcher = PeerFetcher(
            2,
            broker_id=1,
            config=cluster.config,
            connect=leader.connect,
            broker_epoch=lambda: 1,
            count=lambda _: None,
            on_corrupt=lambda *_: None,
            throttle=throttle,
            tracer=None,
        )
        for replica in list(node.manager):
            replica.throttled_as_follower = True
            fetcher.assign(replica, 0)
        await asyncio.sleep(1)
        assert leader.asked == []
        throttle.set_rate(rate)
        await asyncio.sleep(0.11)
        assert leader.asked == [asked]
        await fetcher.stop()

    await node.process.run(inside())
