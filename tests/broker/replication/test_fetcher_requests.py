"""What a follower sends over its connections, and when, with a leader that answers on order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from typing import cast

import pytest

from broker.replication.fetcher import PeerFetcher
from broker.replication.follower import REST_MIN_S
from broker.replication.follower_throttle import FollowerThrottle
from broker.replication.leader_connection import LeaderConnection
from metadata.config_key import LONG_MAX
from runtime.backoff import FIRST_MS, MOST_MS
from stele.cluster.kafka_connection import PendingAnswer
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import stamp
from stele.wire.kafka.messages import fetch as wire
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, TOPIC_ID, Node, ReplicaCluster
from tests.support.replication import with_topic

PARTITIONS = 4
SESSION_ID = 7
SOON = ErrorCode.NOT_LEADER_OR_FOLLOWER  # which passes
SOON_S = 0.001
SYNC_S = 0.01


def partition(number: int) -> PartitionId:
    return PartitionId(TOPIC_ID, number)


def records(base_offset: int = 0, count: int = 1, epoch: int = 0) -> wire.PartitionData:
    batch = make_batch(count)
    stamp(batch, 0, base_offset=base_offset, leader_epoch=epoch)
    return wire.PartitionData(high_watermark=0, log_start_offset=0, records=memoryview(batch))


def refusal(error: ErrorCode) -> wire.PartitionData:
    return wire.PartitionData(error_code=error, high_watermark=-1, log_start_offset=-1)


class OrderedLeader:
    """Keeps what each request asks for and forgets, until a test has it answered."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.forgotten: list[list[int]] = []
        self.epochs: list[int] = []  # of the session, in each request
        self.offsets: list[dict[int, int]] = []  # by partition, in each request
        self.connected_s: list[float] = []
        self.closed = 0
        self.refuses = 0  # so many connections
        self._waiting: list[PendingAnswer[wire.FetchResponse]] = []

    async def connect(self, broker_id: int) -> LeaderConnection:
        self.connected_s.append(asyncio.get_running_loop().time())
        if self.refuses:
            self.refuses -= 1
            raise ConnectionRefusedError("nobody listens")
        self._waiting.clear()
        return cast(LeaderConnection, self)

    def fetch(self, request: wire.FetchRequest, answer: PendingAnswer[wire.FetchResponse]) -> None:
        asked = {each.partition: each for topic in request.topics for each in topic.partitions}
        self.asked.append(sorted(asked))
        self.offsets.append({number: each.fetch_offset for number, each in asked.items()})
        gone = (number for topic in request.forgotten_topics_data for number in topic.partitions)
        self.forgotten.append(sorted(gone))
        self.epochs.append(request.session_epoch)
        self._waiting.append(answer)

    async def answer(
        self,
        told: Mapping[int, wire.PartitionData] | None = None,
        *,
        error: ErrorCode = ErrorCode.NONE,
        session_id: int = SESSION_ID,
        wait_s: float = SOON_S,
    ) -> None:
        """The oldest request."""
        for number, data in (told or {}).items():
            data.partition_index = number
        topic = wire.FetchableTopicResponse(
            topic_id=TOPIC_ID, partitions=list((told or {}).values())
        )
        response = wire.FetchResponse(
            error_code=error, session_id=session_id, responses=[topic] if told else []
        )
        self._waiting.pop(0).set_result(response)
        await asyncio.sleep(wait_s)

    async def fail(self) -> None:
        """The connection breaks."""
        self._waiting.pop(0).set_exception(ApiError(ErrorCode.NETWORK_EXCEPTION, "it broke"))
        await asyncio.sleep(SOON_S)

    @property
    def pauses_ms(self) -> list[int]:
        """Between the attempts to connect."""
        times_s = self.connected_s
        return [round(1000 * (after - before)) for before, after in pairwise(times_s)]

    def close(self) -> None:
        self.closed += 1


Act = Callable[[OrderedLeader, PeerFetcher, Node], Awaitable[None]]


async def fetching(cluster: ReplicaCluster, act: Act, rate: int = LONG_MAX) -> None:
    """Act inside of the process of a broker whose own fetchers hear nothing. ``rate``: of throttled
    replicas."""
    node = cluster[1]
    cluster.simulation.fabric.isolate("b1", ["b2"])

    async def inside() -> None:
        leader = OrderedLeader()
        throttle = FollowerThrottle(
            node.process.world.clock, broker_id=1, count_bytes=lambda _: None
        )
        throttle.set_rate(rate)
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
        await act(leader, fetcher, node)
        await fetcher.stop()

    await node.process.run(inside())


async def follow(fetcher: PeerFetcher, node: Node, *numbers: int, epoch: int = 0) -> None:
    for number in numbers:
        fetcher.assign(node.replica(partition(number)), epoch)
    await asyncio.sleep(SOON_S)


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
        assert leader.epochs == [0, 1, 2, 3, 4]

    await fetching(cluster, act)


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_news_of_one_moment_go_in_one_request(cluster: ReplicaCluster) -> None:
    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        await follow(fetcher, node, 0)
        await leader.answer()
        await follow(fetcher, node, 1, 2, 3)
        assert leader.asked == [[0], [], [1, 2, 3]]

    await fetching(cluster, act)


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_nothing_is_asked_for_when_all_that_was_followed_is_forgotten(
    cluster: ReplicaCluster,
) -> None:
    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        await follow(fetcher, node, 0)
        fetcher.remove(P0)
        fetcher.remove(partition(3))  # which it did not follow
        await leader.answer()
        assert leader.asked == [[0], []]
        assert leader.forgotten == [[], [0]]
        await leader.answer()
        await asyncio.sleep(10)
        assert leader.asked == [[0], []]
        await follow(fetcher, node, 1)
        assert leader.asked == [[0], [], [1]]

    await fetching(cluster, act)


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_a_position_is_told_when_what_is_below_it_is_on_disk(
    cluster: ReplicaCluster,
) -> None:
    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        node.disk.faults.sync_s = (SYNC_S, SYNC_S)
        await follow(fetcher, node, 0, 1)
        await leader.answer({0: records(count=3)})
        await follow(fetcher, node, 2)
        log = node.replica().log
        assert (log.end_offset, log.durability.durable_offset) == (3, 0)
        assert leader.asked == [[0, 1]], "it would acknowledge what may be lost"
        await asyncio.sleep(SYNC_S)
        assert log.durability.durable_offset == 3
        assert leader.offsets[1:] == [{0: 3, 2: 0}]

    await fetching(cluster, act)


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_an_answer_to_a_request_of_an_earlier_epoch_says_nothing(
    cluster: ReplicaCluster,
) -> None:
    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        await follow(fetcher, node, 0)
        await leader.answer()
        await follow(fetcher, node, 0, epoch=1)
        assert leader.asked == [[0], [], [0]]
        await leader.answer({0: records(count=2)})
        assert node.replica().log.end_offset == 0
        await leader.answer({0: records(count=3), 3: records(count=3)}, wait_s=2 * SYNC_S)
        assert node.replica().log.end_offset == 3
        assert node.replica(partition(3)).log.end_offset == 0, "it is not followed"

    await fetching(cluster, act)


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_a_partition_that_is_refused_rests_and_the_others_go_on(
    cluster: ReplicaCluster,
) -> None:
    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        await follow(fetcher, node, 0, 1)
        await leader.answer({0: refusal(SOON)})
        assert (leader.asked[1:], leader.forgotten[1:]) == ([[]], [[0]])
        await asyncio.sleep(REST_MIN_S)
        assert leader.asked[1:] == [[], [0]]
        await leader.answer()
        await leader.answer({0: refusal(SOON), 1: refusal(SOON)})
        assert (leader.asked[3:], leader.forgotten[3:]) == ([[]], [[0, 1]])
        await leader.answer()
        assert len(leader.asked) == 4, "all partitions rest, and the leader has forgotten them"
        fetcher.made_durable(P0)
        fetcher.remove(P0)
        await asyncio.sleep(3 * REST_MIN_S)
        assert leader.asked[4:] == [[1]]

    await fetching(cluster, act)


@pytest.mark.parametrize(
    ("error", "session_id", "why"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, SESSION_ID, "the fetch session ended"),
        (ErrorCode.NONE, 0, "the leader does not know this broker's epoch yet"),
    ],
)
@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_a_session_that_ended_is_begun_anew_with_all_that_does_not_rest(
    cluster: ReplicaCluster,
    caplog: pytest.LogCaptureFixture,
    error: ErrorCode,
    session_id: int,
    why: str,
) -> None:
    caplog.set_level("INFO")

    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        await follow(fetcher, node, 0, 1, 2)
        await leader.answer({1: refusal(ErrorCode.KAFKA_STORAGE_ERROR)})
        fetcher.remove(partition(2))
        await leader.answer(error=error, session_id=session_id)
        assert leader.closed == 1
        await asyncio.sleep(2 * FIRST_MS / 1000)
        assert (leader.asked[2:], leader.epochs[2:]) == ([[0]], [0])
        assert leader.forgotten[2:] == [[]], "a session that begins has nothing to forget"
        await leader.answer()
        await asyncio.sleep(cluster.config.replica_fetch_backoff_ms / 1000)
        assert leader.asked[3:] == [[], [1]]

    await fetching(cluster, act)
    assert why in caplog.text
    assert not [each for each in caplog.records if each.exc_info], "it is no mistake of the broker"


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_pauses_between_connections_grow_until_one_has_worked(
    cluster: ReplicaCluster,
) -> None:
    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        leader.refuses = 4
        await follow(fetcher, node, 0)
        await asyncio.sleep(1)
        failed_s = asyncio.get_running_loop().time()
        await leader.fail()  # before it had a session
        await asyncio.sleep(1)
        assert leader.closed == 1
        assert round(1000 * (leader.connected_s[-1] - failed_s)) == MOST_MS
        grown = [FIRST_MS, 2 * FIRST_MS, 4 * FIRST_MS, MOST_MS]
        assert leader.pauses_ms[:4] == grown
        await leader.answer()
        leader.refuses = 1
        failed_s = asyncio.get_running_loop().time()
        await leader.fail()
        await asyncio.sleep(1)
        first_s, second_s = leader.connected_s[-2:]
        assert round(1000 * (first_s - failed_s)) == FIRST_MS
        assert round(1000 * (second_s - first_s)) == 2 * FIRST_MS
        assert leader.asked[-1] == [0]

    await fetching(cluster, act)


@with_topic(*[(2, 1)] * PARTITIONS, brokers=2)
async def test_a_partition_that_waits_for_quota_is_not_asked_for_over_a_new_connection(
    cluster: ReplicaCluster,
) -> None:
    cluster.refuse = ErrorCode.INELIGIBLE_REPLICA
    cluster.change(isr=(2,))
    await asyncio.sleep(0.1)

    async def act(leader: OrderedLeader, fetcher: PeerFetcher, node: Node) -> None:
        node.replica().throttled_as_follower = True
        await follow(fetcher, node, 0, 1)
        await leader.answer()
        await leader.fail()
        await asyncio.sleep(1)
        assert leader.asked == [[1], [], [1]]
        node.replica().throttled_as_follower = False
        fetcher.look_again(P0)
        await leader.answer()
        assert leader.asked[3:] == [[0]]

    await fetching(cluster, act, rate=0)
