"""Replication throttles limit the bytes per second for replicas that are not in sync, and for no
others."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.fetch_session import FetchSession
from broker.replication.quota import BURST_S
from broker.replication.types import FetchEntry
from chaos.sim.laws.sessions import unnoticed
from metadata.configs import CLUSTER, ConfigResource
from stele.ids import PartitionId
from stele.wire.v1 import metadata_pb2 as pb
from storage.cold_range import ColdRange
from storage.log_types import ReadResult
from tests.support.batches import make_batch
from tests.support.fetches import AskedFetch, Done
from tests.support.replica_cluster import P0, TOPIC, TOPIC_ID, Node, ReplicaCluster
from tests.support.replication import ends, with_topic
from tests.support.timing import until
from tests.support.worlds import Scenario, gives

LEADERS = "leader.replication.throttled"
FOLLOWERS = "follower.replication.throttled"
RATE = 50_000
P1, P2 = PartitionId(TOPIC_ID, 1), PartitionId(TOPIC_ID, 2)
VALUE = b"v" * 5_000


def set_config(cluster: ReplicaCluster, name: str, value: object, *, topic: bool = False) -> None:
    """Set a config of the topic or of all brokers."""
    resource = ConfigResource.topic(TOPIC) if topic else CLUSTER
    record = pb.ConfigRecord(
        resource_type=resource.type,  # type: ignore[arg-type]
        resource_name=resource.name,
        name=name,
    )
    if value is not None:
        record.value = str(value)
    cluster.commit(pb.MetadataRecord(config=record))


def throttle(cluster: ReplicaCluster, role: str, rate: int = RATE, replicas: str = "*") -> None:
    set_config(cluster, f"{role}.rate", rate)
    set_config(cluster, f"{role}.replicas", replicas, topic=True)


async def fall_behind(cluster: ReplicaCluster, batches: int = 60, *parts: PartitionId) -> None:
    """Stop broker 3 while batches of some 5 kB are written, and start it again."""
    cluster.fence(3)
    cluster[3].kill()
    for part in parts or (P0,):
        for _ in range(batches):
            leader = cluster[cluster.state(part).leader]
            await leader.produce(make_batch(value=VALUE), partition=part)
    await cluster[3].start()


def come_back(cluster: ReplicaCluster) -> None:
    cluster.register(cluster[3])


def copied_bytes(cluster: ReplicaCluster) -> int:
    return cluster[3].manager.measures.counters().replication_bytes_in


async def check_rate(cluster: ReplicaCluster, seconds: int, rate: int = RATE) -> None:
    """Broker 3 copies less than the rate, but not much less."""
    began = copied_bytes(cluster)
    batch = len(make_batch(value=VALUE))
    for second in range(1, seconds + 1):
        await asyncio.sleep(1)
        copied = copied_bytes(cluster) - began
        assert copied <= rate * (second + BURST_S) + batch
        assert copied >= rate * second * 0.8


@with_topic
async def test_a_follower_that_is_not_in_sync_gets_no_more_than_the_leaders_rate(
    cluster: ReplicaCluster,
) -> None:
    await fall_behind(cluster)
    throttle(cluster, LEADERS)
    come_back(cluster)
    await check_rate(cluster, 4)
    counters = cluster[1].manager.measures.counters()
    assert counters.throttled_bytes_out >= 4 * RATE * 0.8
    await until(lambda: 3 in cluster.state().isr)


@with_topic(settings={"replica_fetch_wait_max_ms": 20_000, "replica_lag_time_max_ms": 30_000})
async def test_a_fetch_that_waits_for_quota_is_answered_as_soon_as_there_is_some(
    cluster: ReplicaCluster,
) -> None:
    """Not only when its own time is over."""
    await fall_behind(cluster)
    throttle(cluster, LEADERS)
    come_back(cluster)
    await check_rate(cluster, 4)
    await until(lambda: 3 in cluster.state().isr, within_s=10)


@with_topic((1, 2, 3), (2, 1, 3), settings={"replica_fetch_max_bytes": 10_000})
async def test_a_follower_that_is_not_in_sync_asks_for_no_more_than_its_own_rate(
    cluster: ReplicaCluster,
) -> None:
    await fall_behind(cluster, 30, P0, P1)
    throttle(cluster, FOLLOWERS)
    come_back(cluster)
    await check_rate(cluster, 4)
    assert cluster[3].manager.measures.counters().throttled_bytes_in == copied_bytes(cluster)
    await until(lambda: 3 in cluster.state().isr and 3 in cluster.state(P1).isr)


@with_topic
async def test_who_is_in_sync_is_never_held_back(cluster: ReplicaCluster) -> None:
    await fall_behind(cluster)
    throttle(cluster, LEADERS, rate=0)
    come_back(cluster)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(30):
        await cluster[1].produce(make_batch(value=VALUE))
    assert loop.time() - began < 1
    assert ends(cluster, 1, 2) == [90, 90]
    await asyncio.sleep(3)
    assert copied_bytes(cluster) == 0
    assert cluster.state().isr == (1, 2)


@with_topic
async def test_consumers_are_never_held_back(cluster: ReplicaCluster) -> None:
    throttle(cluster, LEADERS, rate=0)
    await cluster[1].produce(make_batch(value=VALUE))
    assert len((await cluster[1].fetch(0)).records) == 1


@pytest.mark.parametrize(("name", "topic"), [("replicas", True), ("rate", False)])
@with_topic
async def test_a_throttle_ends_with_its_list_or_its_rate(
    cluster: ReplicaCluster, name: str, topic: bool
) -> None:
    await fall_behind(cluster)
    throttle(cluster, LEADERS, rate=0)
    throttle(cluster, FOLLOWERS, rate=0)
    come_back(cluster)
    await asyncio.sleep(3)
    assert copied_bytes(cluster) == 0
    for role in (LEADERS, FOLLOWERS):
        set_config(cluster, f"{role}.{name}", None, topic=topic)
    await until(lambda: 3 in cluster.state().isr, within_s=2)


@with_topic((1, 2, 3), (1, 2, 3))
async def test_partitions_that_are_not_named_go_on_while_others_wait(
    cluster: ReplicaCluster,
) -> None:
    await fall_behind(cluster, 60, P0, P1)
    throttle(cluster, LEADERS, rate=0, replicas="0:1,1:2")
    throttle(cluster, FOLLOWERS, rate=0, replicas="0:3,1:1")
    come_back(cluster)
    await until(lambda: 3 in cluster.state(P1).isr, within_s=3)
    assert 3 not in cluster.state(P0).isr
    assert cluster[3].replica(P0).log.end_offset == 0


@with_topic
async def test_looks_at_what_waits_for_quota_cost_nothing_to_the_rest(
    cluster: ReplicaCluster,
) -> None:
    """Fetches with records of one partition do not examine the partitions that wait."""

    await fall_behind(cluster)
    throttle(cluster, LEADERS, rate=0)
    come_back(cluster)
    await asyncio.sleep(1)
    session = [each for each in cluster[1].sessions if each.replica_id == 3][-1]
    assert list(session.held) == [P0]
    assert session.to_look_at(lambda: 0.0) == []
    replicas, sessions = cluster[1].manager.hosted, cluster[1].sessions
    assert not list(unnoticed(replicas, sessions))
    cluster[1].replica().throttled_as_leader = False
    assert any("in vain" in fault for fault in unnoticed(replicas, sessions))


# ------------------------------------------------------------------- one look of a session


@gives("leader", "session")
def behind(scenario: Scenario) -> None:
    """Act on the leader of three partitions with records, and on a session of broker 3, which runs
    no more. Two partitions have waited until there was quota for some batches."""

    async def whole(cluster: ReplicaCluster) -> None:
        await fall_behind(cluster, 3, P0, P1, P2)
        cluster[3].kill()
        throttle(cluster, LEADERS, rate=2 * len(VALUE), replicas="0:1,1:1")
        leader, session = cluster[1], FetchSession(7, 3)
        session.update([entry(leader, each) for each in (P0, P1, P2)], ())
        assert await look(leader, session) == [P0, P1, P2]
        assert await look(leader, session) == [P2], "it is not throttled"
        await until(lambda: session.was_woken, within_s=1)
        await asyncio.sleep(BURST_S)
        assert list(session.held) == [P0, P1]
        await scenario(leader, session)

    with_topic.run(whole, (1, 2, 3), (1, 2, 3), (1, 2, 3))


def entry(leader: Node, partition: PartitionId) -> FetchEntry:
    epoch = leader.replica(partition).machine.leader_epoch
    return FetchEntry(partition, 0, 1 << 20, current_leader_epoch=epoch)


async def look(leader: Node, session: FetchSession, max_bytes: int = 1 << 20) -> list[PartitionId]:
    """The partitions of which broker 3 gets records."""

    def begin(done: Done) -> None:
        epoch = leader.cluster[3].epoch
        asked = AskedFetch([], done, max_bytes=max_bytes, replica_id=3, replica_epoch=epoch)
        asked.session = session
        leader.manager.fetch.begin(asked)

    results = session.changed(await leader.do(begin))
    return [each.id for each in results if each.records]


@behind
async def test_what_waits_for_quota_comes_in_order_when_there_is_some(
    leader: Node, session: FetchSession
) -> None:
    assert await look(leader, session) == [P2, P0, P1]
    assert not session.held
    assert await look(leader, session) == [P2]
    await until(lambda: session.was_woken, within_s=1)
    assert await look(leader, session) == [P2, P0], "one batch uses the quota up"
    assert list(session.held) == [P1]


@behind
async def test_a_full_answer_looks_at_nothing_that_waits_for_quota(
    leader: Node, session: FetchSession
) -> None:
    """However many partitions wait, a look in vain costs nothing. They keep their places."""
    assert await look(leader, session, max_bytes=1) == [P2]
    assert list(session.held) == [P0, P1]
    session.update([], [P2])
    assert await look(leader, session, max_bytes=1) == [P0]
    assert list(session.held) == [P1]


@behind
async def test_a_look_ends_at_the_first_that_waits_for_quota_and_is_not_in_memory(
    leader: Node, session: FetchSession
) -> None:
    """Else each look would try all that wait, and ask the device for one."""
    tried: list[PartitionId] = []
    for partition in (P0, P1):
        log = leader.replica(partition).log
        cold = ColdRange(log.segments.active.path, 0, 100)

        def read(
            *_: object, of: PartitionId = partition, is_at: ColdRange = cold, **__: object
        ) -> ReadResult:
            tried.append(of)
            return ReadResult(b"", 0, is_at)

        log.read = read  # type: ignore[method-assign]
    assert await look(leader, session) == [P2]
    assert (tried, list(session.held)) == ([P0], [P1])
