"""Consumers that read from followers (KIP-392), on three brokers."""

from __future__ import annotations

import asyncio

from broker.replication.fetch_session import FetchSession
from broker.replication.types import EpochEnd, FetchEntry, FetchResult
from metadata.node_settings import RACK_AWARE_SELECTOR
from stele.errors import ErrorCode
from tests.support.batches import make_batch
from tests.support.fetches import AskedFetch, Done
from tests.support.replica_cluster import P0, Node, ReplicaCluster
from tests.support.replication import settled, with_brokers, with_topic
from tests.support.timing import until


async def read(
    node: Node,
    offset: int,
    *,
    epoch: int = -1,
    last_epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    nearby: frozenset[int] = frozenset(),
) -> FetchResult:
    """A consumer's fetch that any replica may answer."""
    entry = FetchEntry(
        P0, offset, 1 << 20, current_leader_epoch=epoch, last_fetched_epoch=last_epoch
    )

    def begin(done: Done) -> None:
        node.manager.fetch.begin(
            AskedFetch(
                [entry],
                done,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                any_replica=True,
                nearby=nearby,
            )
        )

    return (await node.do(begin))[0]


@with_topic
async def test_a_follower_serves_committed_records_and_wakes_waiters_for_more(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    answer = await read(cluster[2], 0, max_wait_ms=5000)
    assert (answer.error, len(answer.records), answer.high_watermark) == (0, 1, 1)
    cluster.simulation.fabric.isolate("b1", ["b3"])
    await cluster[1].produce(acks=1)
    await until(lambda: cluster[2].replica().log.end_offset == 2)
    assert (await read(cluster[2], 1)).records == []  # not committed: broker 3 lacks it
    waiting = asyncio.ensure_future(read(cluster[2], 1, max_wait_ms=60_000))
    cluster.simulation.fabric.heal()
    answer = await waiting
    assert (len(answer.records), answer.high_watermark) == (1, 2)


@with_topic
async def test_a_follower_has_no_use_for_a_lease(cluster: ReplicaCluster) -> None:
    cluster[2].lease = False
    assert (await read(cluster[2], 0, max_wait_ms=300)).error is ErrorCode.NONE


@with_topic
async def test_a_follower_refuses_as_kafka_does(cluster: ReplicaCluster) -> None:
    cluster.change(leader=1)
    await until(lambda: cluster[2].replica().machine.leader_epoch == 1)
    await cluster[1].produce()
    assert (await cluster[2].fetch(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await read(cluster[2], 0, epoch=0)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert (await read(cluster[2], 0, epoch=2)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await read(cluster[2], 2, epoch=1)).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await read(cluster[1], 2, epoch=1)).error is ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.change(isr=(1, 3))
    await until(lambda: cluster[2].replica().machine.state.isr == (1, 3))
    refused = await read(cluster[2], 0)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.leader == (1, 1)


@with_topic
async def test_who_waits_at_a_follower_hears_that_it_left_the_isr(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    await until(lambda: cluster[2].replica().machine.high_watermark == 1)
    cluster.simulation.fabric.isolate("b2", ["b1", "b3"])
    waiting = asyncio.ensure_future(read(cluster[2], 1, max_wait_ms=60_000))
    await asyncio.sleep(0.1)
    cluster.change(isr=(1, 3))
    began = cluster.simulation.now
    assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.simulation.now - began < 1


@with_topic
async def test_who_waits_at_a_follower_hears_that_its_offset_was_truncated(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    await until(lambda: cluster[2].replica().machine.high_watermark == 1)
    waiting = asyncio.ensure_future(read(cluster[2], 1, max_wait_ms=60_000))
    await asyncio.sleep(0.1)
    cluster.simulation.fabric.isolate("b2", ["b1", "b3"])
    began = cluster.simulation.now
    await cluster[2].process.run(_truncate(cluster[2], 0))
    assert (await waiting).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert cluster.simulation.now - began < 1


async def _truncate(node: Node, offset: int) -> None:
    node.replica().truncate_to(offset)


@with_topic
async def test_a_follower_tells_a_divergence_only_of_committed_history(
    cluster: ReplicaCluster,
) -> None:
    cluster.change(leader=1)
    await until(lambda: cluster[2].replica().machine.leader_epoch == 1)
    await cluster[1].produce()
    await until(lambda: cluster[2].replica().machine.high_watermark == 1)
    told = await read(cluster[2], 1, last_epoch=0)
    assert told.diverging == EpochEnd(0, 0)
    cluster.simulation.fabric.isolate("b1", ["b3"])
    await cluster[1].produce(acks=1)
    await until(lambda: cluster[2].replica().log.end_offset == 2)
    assert (await read(cluster[2], 2, last_epoch=0)).diverging is None
    began = cluster.simulation.now
    waits = await read(cluster[2], 2, last_epoch=0, max_wait_ms=300, min_bytes=2)
    assert (waits.error, waits.diverging, waits.records) == (0, None, [])
    assert cluster.simulation.now >= began + 0.3, "it was answered before its time, with nothing"
    assert (await read(cluster[1], 2, last_epoch=0)).diverging == EpochEnd(0, 0)


@with_topic
async def test_a_leader_sends_a_consumer_to_a_nearer_replica_that_has_the_offset(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    near_2 = frozenset({2})
    sent = await read(cluster[1], 0, nearby=near_2, max_wait_ms=60_000)
    assert (sent.error, sent.preferred_replica, sent.records) == (0, 2, [])
    assert sent.high_watermark == 1
    stays = await read(cluster[1], 0, nearby=frozenset({1, 2}))
    assert (stays.preferred_replica, len(stays.records)) == (-1, 1)
    # It is sent from the wait for bytes as well.
    waits = await read(cluster[1], 1, nearby=near_2, max_wait_ms=60_000, min_bytes=1_000_000)
    assert waits.preferred_replica == 2
    # A follower names nobody.
    assert (await read(cluster[2], 0, nearby=frozenset({3}))).preferred_replica == -1
    cluster.simulation.fabric.isolate("b2", ["b1", "b3"])
    await cluster[1].produce(acks=1)
    lags = await read(cluster[1], 2, nearby=near_2)
    assert (lags.error, lags.preferred_replica) == (0, -1)
    began = cluster.simulation.now
    lags = await read(cluster[1], 2, nearby=near_2, max_wait_ms=300, min_bytes=2)
    assert (lags.error, lags.preferred_replica) == (0, -1)
    assert cluster.simulation.now >= began + 0.3, "it has to wait for its bytes here"
    out = await read(cluster[1], 7, nearby=near_2)
    assert (out.error, out.preferred_replica) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@with_topic((1, 0), brokers=2, first_id=0)
async def test_a_leader_sends_a_consumer_to_the_broker_of_id_0_as_to_any_other(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    began = cluster.simulation.now
    for offset, min_bytes in ((0, 1), (1, 1), (1, 1_000_000)):
        sent = await read(
            cluster[1], offset, nearby=frozenset({0}), max_wait_ms=60_000, min_bytes=min_bytes
        )
        assert (sent.error, sent.preferred_replica, sent.records) == (0, 0, [])
    assert cluster.simulation.now == began


@with_topic((1, 2, 3), (1, 3))
async def test_a_consumer_that_is_sent_elsewhere_for_one_partition_does_not_wait_for_others(
    cluster: ReplicaCluster,
) -> None:
    entries = [FetchEntry(P0._replace(partition=number), 0, 1 << 20) for number in (0, 1)]

    def begin(done: Done) -> None:
        asked = AskedFetch(entries, done, max_wait_ms=60_000, nearby=frozenset({2}))
        cluster[1].manager.fetch.begin(asked)

    began = cluster.simulation.now
    results = await cluster[1].do(begin)
    assert [each.preferred_replica for each in results] == [2, -1]
    assert cluster.simulation.now == began


@with_brokers(replica_selector_class=RACK_AWARE_SELECTOR)
async def test_with_the_selector_followers_hear_at_once_of_committed_records(
    cluster: ReplicaCluster,
) -> None:
    cluster.create_topic((1, 2, 3))
    await settled(cluster)
    await asyncio.sleep(2)
    began = cluster.simulation.now
    waiting = asyncio.ensure_future(read(cluster[2], 0, max_wait_ms=60_000))
    await cluster[1].produce(make_batch())
    assert len((await waiting).records) == 1
    assert cluster.simulation.now - began < 0.1
    before = [session.epoch for session in cluster[1].sessions]
    await asyncio.sleep(2)  # they wait again, for half a second each
    after = [session.epoch for session in cluster[1].sessions]
    assert [now - then for then, now in zip(before, after, strict=True)] <= [6, 6]
    began = cluster.simulation.now
    refused = asyncio.ensure_future(follow(cluster, 9))
    assert (await refused).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.simulation.now == began, "an error is told at once"


async def follow(cluster: ReplicaCluster, offset: int) -> FetchResult:
    """The first fetch of a session of broker 2."""
    entry = FetchEntry(P0, offset, 1 << 20, current_leader_epoch=0)

    def begin(done: Done) -> None:
        fetch = AskedFetch(
            [], done, max_wait_ms=60_000, replica_id=2, replica_epoch=cluster[2].epoch
        )
        fetch.session = FetchSession(session_id=1, replica_id=2)
        fetch.session.update([entry], [])
        cluster[1].manager.fetch.begin(fetch)

    return (await cluster[1].do(begin))[0]
