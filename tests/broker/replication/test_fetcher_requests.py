"""When a follower sends its requests over one connection, with a leader that answers on order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from broker.replication.fetcher import PeerFetcher
from broker.replication.follower_throttle import FollowerThrottle
from broker.replication.leader_connection import LeaderConnection
from stele.cluster.kafka_connection import PendingAnswer
from stele.ids import PartitionId
from stele.wire.kafka.messages import fetch as wire
from tests.support.replica_cluster import P0, TOPIC_ID, Node, ReplicaCluster
from tests.support.replication import with_topic

PARTITIONS = 4
SESSION_ID = 7


class OrderedLeader:
    """Keeps what each request asks for and forgets, until a test has it answered."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.forgotten: list[list[int]] = []
        self._waiting: list[PendingAnswer[wire.FetchResponse]] = []

    async def connect(self, broker_id: int) -> LeaderConnection:
        return cast(LeaderConnection, self)

    def fetch(self, request: wire.FetchRequest, answer: PendingAnswer[wire.FetchResponse]) -> None:
        asked = (each.partition for topic in request.topics for each in topic.partitions)
        self.asked.append(sorted(asked))
        gone = (number for topic in request.forgotten_topics_data for number in topic.partitions)
        self.forgotten.append(sorted(gone))
        self._waiting.append(answer)

    async def answer(self) -> None:
        """The oldest request, with nothing new."""
        self._waiting.pop(0).set_result(wire.FetchResponse(session_id=SESSION_ID))
        await asyncio.sleep(0.001)

    def close(self) -> None:
        pass


Act = Callable[[OrderedLeader, PeerFetcher, Node], Awaitable[None]]


async def fetching(cluster: ReplicaCluster, act: Act) -> None:
    """Act inside of the process of a broker whose only fetcher is the one under test."""
    node = cluster[1]

    async def inside() -> None:
        leader = OrderedLeader()
        throttle = FollowerThrottle(
            node.process.world.clock, broker_id=1, count_bytes=lambda _: None
        )
        fetcher = PeerFetcher(
            2,
            broker_id=1,
            config=cluster.config,
            connect=leader.connect,
            broker_epoch=lambda: 1,
            count=lambda _: None,
            on_corrupt=lambda *_: None,
            throttle=throttle,
        )
        await act(leader, fetcher, node)
        await fetcher.stop()

    await node.process.run(inside())


async def follow(fetcher: PeerFetcher, node: Node, *numbers: int) -> None:
    for number in numbers:
        fetcher.assign(node.replica(PartitionId(TOPIC_ID, number)), 0)
    await asyncio.sleep(0.001)


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_news_go_behind_one_waiting_request_and_no_more(cluster: ReplicaCluster) -> None:
    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        await follow(fetcher, node, 0)
        await follow(fetcher, node, 1)
        assert leader.asked == [[0]], "the session has no id yet"
        await leader.answer()
        assert leader.asked == [[0], [1]]
        await follow(fetcher, node, 2)
        assert leader.asked == [[0], [1], [2]]
        await follow(fetcher, node, 3)
        assert leader.asked == [[0], [1], [2]], "two requests have no answer"
        await leader.answer()
        assert leader.asked == [[0], [1], [2], [3]]
        await leader.answer()
        assert leader.asked == [[0], [1], [2], [3]], "one waits, and there are no news"
        await leader.answer()
        assert leader.asked == [[0], [1], [2], [3], []]

    await fetching(cluster, act)


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_nothing_is_asked_for_when_all_that_was_followed_is_forgotten(
    cluster: ReplicaCluster,
) -> None:
    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        await follow(fetcher, node, 0)
        fetcher.remove(P0)
        await leader.answer()
        assert leader.asked == [[0], []]
        assert leader.forgotten == [[], [0]]
        await leader.answer()
        await asyncio.sleep(10)
        assert leader.asked == [[0], []]
        await follow(fetcher, node, 1)
        assert leader.asked == [[0], [], [1]]

    await fetching(cluster, act)
