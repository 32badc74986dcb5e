"""The fetch session of a follower with its leader: what it outlasts, and how it ends."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.fetch_session import FetchSession
from broker.replication.replica import ReplicaState
from broker.replication.types import EpochEnd, FetchEntry, FetchResult
from stele.errors import ErrorCode
from stele.ids import PartitionId
from tests.support.batches import make_batch
from tests.support.fetches import AskedFetch, Done
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until

P1, P2 = PartitionId(TOPIC_ID, 1), PartitionId(TOPIC_ID, 2)


@with_topic((1, 2), (1, 2), (1, 2), brokers=2)
async def test_a_partition_that_goes_leaves_the_session_and_the_session_goes_on(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    (session,) = leader.sessions
    assert session.entries.keys() == {P0, P1, P2}
    for gone in (P1, P2):
        cluster.change(gone, leader=2)
    await until(lambda: session.entries.keys() == {P0})
    assert (await leader.produce()).error is ErrorCode.NONE
    assert (await cluster[2].produce(partition=P1)).error is ErrorCode.NONE
    for back in (P1, P2):
        cluster.change(back, leader=1)
    await until(lambda: session.entries.keys() == {P0, P1, P2})
    assert (await leader.produce(partition=P1)).error is ErrorCode.NONE
    assert [*leader.sessions] == [session]


@with_topic((1, 2), brokers=2)
async def test_a_session_ends_with_the_last_partition_of_its_leader(
    cluster: ReplicaCluster,
) -> None:
    cluster.change(leader=2)
    await until(lambda: len(cluster[1].sessions) == 0)
    assert len(cluster[2].sessions) == 1
    assert (await cluster[2].produce()).error is ErrorCode.NONE


@with_topic((1, 2), brokers=2)
async def test_a_follower_that_stops_ends_its_session(cluster: ReplicaCluster) -> None:
    assert len(cluster[1].sessions) == 1
    await cluster[2].process.run(cluster[2].manager.stop())
    await until(lambda: len(cluster[1].sessions) == 0)


@with_topic((1, 2), (1, 2), brokers=2)
async def test_a_follower_opens_another_session_with_all_its_partitions_when_one_breaks(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    (session,) = leader.sessions
    cluster.simulation.fabric.isolate("b1", ["b2"])
    await asyncio.sleep(60)  # more than replica.socket.timeout.ms
    cluster.simulation.fabric.heal()
    await until(lambda: len(leader.sessions) == 1 and [*leader.sessions] != [session])
    (another,) = leader.sessions
    assert another.entries.keys() == {P0, P1}
    for partition in (P0, P1):
        assert (await leader.produce(partition=partition)).error is ErrorCode.NONE


@pytest.mark.parametrize("ends", ["offline", "removed"])
@with_topic((1, 2), (1, 2), brokers=2, min_insync=1)
async def test_a_replica_that_goes_while_starts_are_written_does_not_end_the_session(
    cluster: ReplicaCluster, ends: str
) -> None:
    leader, node = cluster[1], cluster[2]
    for partition in (P0, P1):
        await leader.produce(make_batch(2), partition=partition)
    (session,) = leader.sessions
    node.disk.faults.extra_sync_s = 0.5
    deleting = asyncio.ensure_future(leader.delete(1))
    await until(lambda: node.replica().log.start_offset == 1)
    if ends == "offline":
        node.process.loop.call_soon(node.manager.take_down, node.replica(), ReplicaState.OFFLINE)
    else:
        cluster.change(isr=(1,), replicas=(1,))
    await until(lambda: not node.holds() or node.replica().state is ReplicaState.OFFLINE)
    node.disk.faults.extra_sync_s = 0.0
    assert (await leader.produce(partition=P1)).error is ErrorCode.NONE
    await until(lambda: node.replica(P1).log.end_offset == 3)
    assert [*leader.sessions] == [session]
    deleting.cancel()


@with_topic((1, 2), (1, 2), brokers=2)
async def test_a_leader_that_leads_no_more_is_not_looked_at_when_time_passes(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    unsettled = node.manager.hosted.unsettled
    cluster.simulation.fabric.isolate("b1", ["b2"])
    for partition in (P0, P1):
        await node.produce(partition=partition, acks=1)
    assert unsettled.keys() == {P0, P1}
    cluster.change(leader=2)
    await until(lambda: not node.replica().machine.is_leader)
    await until(lambda: P0 not in unsettled)
    assert P1 in unsettled, "its follower lags"


@with_topic((1, 2), brokers=2)
async def test_a_leader_that_is_not_registered_is_looked_for_until_another_leads(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    cluster.change(leader=9, replicas=(1, 2, 9))
    await until(lambda: "broker 9 has no listener INTERNAL" in caplog.text)
    assert not [each for each in caplog.records if each.exc_info], "it is no mistake of the broker"
    cluster.change(leader=1, replicas=(1, 2))
    assert (await cluster[1].produce()).error is ErrorCode.NONE


@with_topic
async def test_a_follower_whose_history_differs_does_not_rest(cluster: ReplicaCluster) -> None:
    """Its log ends where the leader's does, with other records."""
    leader = cluster[1]
    await leader.produce()
    cluster.change(leader=2)
    cluster.change(leader=1)
    await until(lambda: leader.replica().machine.leader_epoch == 2)
    await leader.produce()
    cluster[3].kill()
    session = FetchSession(7, 3)

    async def look(last_epoch: int) -> FetchResult:
        entry = FetchEntry(P0, 2, 1 << 20, current_leader_epoch=2, last_fetched_epoch=last_epoch)
        session.update([entry], ())

        def begin(done: Done) -> None:
            asked = AskedFetch([], done, replica_id=3, replica_epoch=cluster[3].epoch)
            asked.session = session
            leader.manager.fetch.begin(asked)

        (result,) = session.changed(await leader.do(begin))
        return result

    assert (await look(2)).at_rest
    assert not session.stirred
    other = await look(1)
    assert other.diverging == EpochEnd(0, 1)
    assert not other.at_rest
    assert session.stirred.keys() == {P0}
    assert not leader.replica().machine.rests(3, session.attendance)
