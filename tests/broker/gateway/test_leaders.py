"""Single requests to leaders: which broker is asked, and what its answer means."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import cast

import pytest

from broker.gateway.leaders import KnownProducer, PartitionLeaders, TopicDeletedError
from broker.gateway.peers import UnansweredError
from broker.gateway.publisher_lane import KnownBatch
from broker.replication.types import LeaderHint, ProduceResult
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.in_process import connect
from stele.addresses import Address
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.security.client_security import PLAINTEXT
from stele.world import Channel, Connector
from storage.producer_state import AppendedBatch, ProducerEntry
from tests.support.batches import make_batch
from tests.support.broker_apis import ME, Edges, topic_id
from tests.support.timing import until
from tests.support.worlds import Scenario, gives, virtual

P, P1 = PartitionId(topic_id("t"), 0), PartitionId(topic_id("t"), 1)
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Cluster:
    """Three brokers. The first one has the gateway, whose connections lead to the others."""

    security = PLAINTEXT

    def __init__(self) -> None:
        self.brokers = {broker_id: Edges() for broker_id in (0, ME, 3)}
        self.opened: list[str] = []
        self.connections: list[asyncio.Transport] = []
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.leaders = PartitionLeaders(self.brokers[ME].context, cast(Connector, self))

    def led_by(self, leader: int) -> None:
        for each in self.brokers.values():
            each.register(0)
            each.add_topic("t", [[0, 1, 3]] * 2, leaders=[leader] * 2, leader_epoch=0)

    def answers(self, broker_id: int, hint: LeaderHint, error: ErrorCode = MOVED) -> None:
        self.brokers[broker_id].replicas.produce.results[P] = ProduceResult(P, error, leader=hint)

    async def asked(self) -> int:
        """The broker to which a batch goes."""
        before = {each: self.count(each) for each in self.brokers}
        with contextlib.suppress(ApiError):
            await self.leaders.produce(P, make_batch(1))
        (found,) = (each for each in self.brokers if self.count(each) > before[each])
        return found

    def count(self, broker_id: int) -> int:
        return len(self.brokers[broker_id].replicas.produce.produced)

    # ---------------------------------------------------------------------- Connector

    async def connect(self, address: Address, factory: object) -> asyncio.Transport:
        self.opened.append(address.host)
        await self.may_open.wait()
        broker_id = int(address.host.removeprefix("b").removesuffix(".internal"))
        apis = self.brokers[broker_id].apis
        server = KafkaServerProtocol(
            apis, max_request_bytes=1_000_000, listener_name="INTERNAL", on_close=apis.forget
        )
        client = factory()  # type: ignore[operator]
        self.connections.append(connect(client, server, address.host, address.port))
        return self.connections[-1]

    def channel(self, address: Address, client_id: str | None = None) -> Channel:
        raise NotImplementedError


@gives("cluster")
def with_leaders(scenario: Scenario) -> None:
    async def whole() -> None:
        cluster = Cluster()
        await scenario(cluster)
        await cluster.leaders.close()

    virtual.run(whole)


@pytest.mark.parametrize("leader", [ME, 0])
@with_leaders
async def test_a_batch_is_given_to_the_leader(cluster: Cluster, leader: int) -> None:
    cluster.led_by(leader)
    acknowledged = await cluster.leaders.produce(P, make_batch(1))
    assert acknowledged.base_offset == 7
    ((entries, acks, _),) = cluster.brokers[leader].replicas.produce.produced
    assert [each.id for each in entries] == [P]
    assert acks == -1
    assert cluster.opened == ([] if leader == ME else ["b0.internal"])


@pytest.mark.parametrize("first", [ME, 0])
@with_leaders
async def test_a_refusal_that_names_a_later_leader_is_followed(
    cluster: Cluster, first: int
) -> None:
    cluster.led_by(first)
    cluster.answers(first, LeaderHint(3, 1))
    assert [await cluster.asked(), await cluster.asked()] == [first, 3]


@pytest.mark.parametrize("hint", [LeaderHint(3, 0), LeaderHint(3, -1), LeaderHint(-1, 1)])
@pytest.mark.parametrize("first", [ME, 0])
@with_leaders
async def test_nobody_is_asked_because_of_older_news_or_of_a_leader_that_is_none(
    cluster: Cluster, first: int, hint: LeaderHint
) -> None:
    cluster.led_by(first)
    cluster.answers(first, hint)
    assert [await cluster.asked(), await cluster.asked()] == [first, first]


@with_leaders
async def test_the_latest_of_several_leaders_is_asked(cluster: Cluster) -> None:
    """A broker that has fallen behind names an earlier leader: that one is not gone back to."""
    cluster.led_by(0)
    cluster.answers(0, LeaderHint(3, 3))
    cluster.answers(3, LeaderHint(0, 2))
    assert [await cluster.asked() for _ in range(3)] == [0, 3, 3]
    cluster.answers(3, LeaderHint(0, 4))
    assert [await cluster.asked() for _ in range(2)] == [3, 0]


@with_leaders
async def test_metadata_that_are_newer_than_an_answer_decide(cluster: Cluster) -> None:
    cluster.led_by(0)
    cluster.answers(0, LeaderHint(3, 1))
    cluster.answers(3, LeaderHint(-1, -1))
    assert [await cluster.asked() for _ in range(2)] == [0, 3]
    for leader in (3, 0):  # in leader epoch 1, and in 2
        cluster.brokers[ME].change_leader("t", 0, leader=leader)
    assert await cluster.asked() == 0


@with_leaders
async def test_who_leads_nothing_or_is_gone_gets_no_request(cluster: Cluster) -> None:
    with pytest.raises(TopicDeletedError):
        await cluster.leaders.produce(P, make_batch(1))
    cluster.led_by(-1)
    with pytest.raises(UnansweredError, match="no leader") as unanswered:
        await cluster.leaders.produce(P, make_batch(1))
    assert not unanswered.value.maybe_taken
    with pytest.raises(TopicDeletedError):
        await cluster.leaders.describe(P._replace(partition=2), 7)


@with_leaders
async def test_an_answer_is_not_awaited_from_a_leader_that_was_replaced(cluster: Cluster) -> None:
    cluster.led_by(0)
    cluster.brokers[0].replicas.hold()
    loop = asyncio.get_running_loop()
    began = loop.time()
    asking = loop.create_task(cluster.leaders.produce(P, make_batch(1)))
    await until(lambda: cluster.count(0) == 1)
    cluster.brokers[ME].add_topic("other", [[1]])  # no news of this partition
    await asyncio.sleep(0.1)
    assert not asking.done()
    cluster.brokers[ME].change_leader("t", 0, leader=3)
    with pytest.raises(UnansweredError, match="replaced") as unanswered:
        await asking
    assert unanswered.value.maybe_taken
    assert loop.time() - began < 1.0


@with_leaders
async def test_an_answer_of_the_last_moment_counts_and_others_are_given_up(
    cluster: Cluster,
) -> None:
    """The answer and the news of the next leader come in the same turn."""
    cluster.led_by(0)
    cluster.brokers[0].replicas.hold()
    loop = asyncio.get_running_loop()
    answered = loop.create_task(cluster.leaders.produce(P, make_batch(1)))
    await until(lambda: cluster.count(0) == 1)
    given_up = loop.create_task(cluster.leaders.produce(P1, make_batch(1)))
    await until(lambda: cluster.count(0) == 2)
    began = loop.time()
    for number in (0, 1):
        loop.call_soon(partial(cluster.brokers[ME].change_leader, "t", number, leader=3))
    cluster.brokers[0].replicas.release()
    assert (await answered).base_offset == 7
    with pytest.raises(UnansweredError, match="replaced"):
        await given_up
    assert loop.time() - began < 1.0


@with_leaders
async def test_an_answer_for_a_topic_that_was_deleted_meanwhile_counts(cluster: Cluster) -> None:
    cluster.led_by(0)
    cluster.answers(0, LeaderHint(0, 1), error=ErrorCode.NONE)
    cluster.brokers[0].replicas.hold()
    asking = asyncio.ensure_future(cluster.leaders.produce(P, make_batch(1)))
    await until(lambda: cluster.count(0) == 1)
    cluster.brokers[ME].remove_topic("t")
    await asyncio.sleep(0.1)  # the watcher of the leader has seen that
    cluster.brokers[0].replicas.release()
    assert (await asking).base_offset == -1


# ----------------------------------------------------------------------- connections


@with_leaders
async def test_requests_share_a_connection_until_it_is_lost(cluster: Cluster) -> None:
    cluster.led_by(0)
    await asyncio.gather(*(cluster.leaders.produce(P, make_batch(1)) for _ in range(3)))
    assert await cluster.asked() == 0
    assert cluster.opened == ["b0.internal"]
    cluster.connections[0].abort()
    await asyncio.sleep(0.1)
    assert await cluster.asked() == 0
    assert cluster.opened == ["b0.internal"] * 2


@with_leaders
async def test_a_connection_that_opens_while_the_gateway_stops_is_closed(
    cluster: Cluster,
) -> None:
    cluster.led_by(0)
    cluster.may_open.clear()
    asking = asyncio.ensure_future(cluster.leaders.produce(P, make_batch(1)))
    await until(lambda: bool(cluster.opened))
    await cluster.leaders.close()
    cluster.may_open.set()
    with pytest.raises(UnansweredError, match="this broker stops") as unanswered:
        await asking
    assert not unanswered.value.maybe_taken
    assert cluster.count(0) == 0
    assert all(each.is_closing() for each in cluster.connections)


# ------------------------------------------------------------------------ a producer


@pytest.mark.parametrize("leader", [ME, 0])
@with_leaders
async def test_the_leader_says_how_far_a_producer_has_come(cluster: Cluster, leader: int) -> None:
    cluster.led_by(leader)
    batches = (AppendedBatch(0, 4, 10, 14, 1), AppendedBatch(5, 5, 20, 20, 2))
    known = cluster.brokers[leader].replicas.descriptions.known
    known[P] = [ProducerEntry(8, 1), ProducerEntry(7, 3, batches)]
    found = await cluster.leaders.describe(P, 7)
    assert found == KnownProducer(3, [KnownBatch(0, 4, 10), KnownBatch(5, 5, 20)], 0)
    assert await cluster.leaders.describe(P, 9) == KnownProducer(-1, [], 0)


@pytest.mark.parametrize("leader", [ME, 0])
@with_leaders
async def test_a_broker_that_does_not_lead_says_nothing_of_producers(
    cluster: Cluster, leader: int
) -> None:
    cluster.led_by(leader)
    with pytest.raises(ApiError) as refused:
        await cluster.leaders.describe(P, 7)
    assert refused.value.code is MOVED


@pytest.mark.parametrize("leader", [ME, 0])
@with_leaders
async def test_the_reason_of_a_refusal_is_passed_on(cluster: Cluster, leader: int) -> None:
    cluster.led_by(leader)
    invalid = ErrorCode.INVALID_RECORD
    for message in ("record 3 has no key", ""):
        result = ProduceResult(P, invalid, message)
        cluster.brokers[leader].replicas.produce.results[P] = result
        with pytest.raises(ApiError) as refused:
            await cluster.leaders.produce(P, make_batch(1))
        assert refused.value.code is invalid
        assert refused.value.message == explain(invalid, message)
