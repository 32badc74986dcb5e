"""ListOffsets and epoch ends over three brokers."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.replica import ReplicaState
from broker.replication.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    EpochQuery,
    OffsetQuery,
    OffsetResult,
)
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import BatchBuilder
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, Node, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until


async def list_offset(node: Node, timestamp_ms: int, epoch: int = -1) -> OffsetResult:
    query = OffsetQuery(P0, timestamp_ms, epoch)
    (result,) = await node.process.run(node.manager.offsets.list_offsets([query]))
    return result


@with_topic
async def test_offsets_by_name_and_by_time(cluster: ReplicaCluster) -> None:
    for timestamp_ms in (1_000, 3_000, 2_000):
        builder = BatchBuilder()
        builder.append(b"k", b"v", timestamp_ms=timestamp_ms)
        assert (await cluster[1].produce(builder.build())).error is ErrorCode.NONE
    leader = cluster[1]
    assert (await list_offset(leader, EARLIEST_TIMESTAMP)).offset == 0
    latest = await list_offset(leader, LATEST_TIMESTAMP)
    assert (latest.offset, latest.leader_epoch) == (3, 0)
    found = await list_offset(leader, 1_500)
    assert (found.offset, found.timestamp_ms) == (1, 3_000)
    greatest = await list_offset(leader, MAX_TIMESTAMP)
    assert (greatest.offset, greatest.timestamp_ms) == (1, 3_000)
    nothing = await list_offset(leader, 9_000)
    assert (nothing.error, nothing.offset) == (ErrorCode.NONE, -1)


@with_topic
async def test_only_what_is_committed_is_found(cluster: ReplicaCluster) -> None:
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await cluster[1].produce(acks=1)
    assert (await list_offset(cluster[1], LATEST_TIMESTAMP)).offset == 0
    assert (await list_offset(cluster[1], 500)).offset == -1
    assert (await list_offset(cluster[1], MAX_TIMESTAMP)).offset == -1


@with_topic
async def test_the_newest_committed_record_is_found_below_newer_ones(
    cluster: ReplicaCluster,
) -> None:
    for timestamp_ms in (9_000, 5_000, 6_000):
        await cluster[1].produce(make_batch(timestamp_ms=timestamp_ms))
    assert (await list_offset(cluster[1], MAX_TIMESTAMP)).offset == 0
    cluster[1].replica().begin_at(1)
    assert (await list_offset(cluster[1], MAX_TIMESTAMP)).offset == 2
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await cluster[1].produce(make_batch(timestamp_ms=10_000), acks=1)
    found = await list_offset(cluster[1], MAX_TIMESTAMP)
    assert (found.error, found.offset, found.timestamp_ms) == (ErrorCode.NONE, 2, 6_000)


@with_topic
async def test_searches_in_many_partitions_are_cut_into_turns(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    queries = [OffsetQuery(P0, 5, -1), OffsetQuery(P0, MAX_TIMESTAMP, -1)] * 50
    asking = asyncio.ensure_future(cluster[1].manager.offsets.list_offsets(queries))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert [each.error for each in asking.result()] == [ErrorCode.NONE] * 100
    assert turns >= 100


@with_topic
async def test_a_new_leader_does_not_tell_the_latest_before_it_knows(
    cluster: ReplicaCluster,
) -> None:
    for number in range(3):
        await cluster[1].produce(make_batch(timestamp_ms=1_000 * number))
    cluster.simulation.fabric.isolate("b2", ["b1", "b3"])
    cluster.change(leader=2, isr=(2, 3))
    await until(lambda: cluster[2].replica().machine.is_leader)
    for timestamp_ms in (LATEST_TIMESTAMP, MAX_TIMESTAMP, 5_000_000):
        result = await list_offset(cluster[2], timestamp_ms)
        assert result.error is ErrorCode.OFFSET_NOT_AVAILABLE
    cluster.simulation.fabric.heal()
    await until(lambda: cluster[2].replica().machine.high_watermark == 3)
    assert (await list_offset(cluster[2], LATEST_TIMESTAMP)).offset == 3


@with_topic
async def test_a_leader_without_lease_does_not_tell_the_latest(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    cluster[1].lease = False
    assert (await list_offset(cluster[1], LATEST_TIMESTAMP)).error is (
        ErrorCode.OFFSET_NOT_AVAILABLE
    )
    assert (await list_offset(cluster[1], EARLIEST_TIMESTAMP)).offset == 0
    cluster[1].lease = True
    assert (await list_offset(cluster[1], LATEST_TIMESTAMP)).offset == 1


@with_topic
async def test_offset_requests_are_fenced(cluster: ReplicaCluster) -> None:
    cluster.change(leader=1)
    await until(lambda: cluster[1].replica().machine.leader_epoch == 1)
    for epoch, error in (
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert (await list_offset(cluster[1], EARLIEST_TIMESTAMP, epoch)).error is error
        asked = [EpochQuery(P0, 0, epoch)]
        assert cluster[1].manager.offsets.end_offset_for_epoch(asked)[0].error is error
        assert (await cluster[1].fetch(0, epoch=epoch)).error is error
    refused = await list_offset(cluster[2], EARLIEST_TIMESTAMP)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@with_topic
async def test_the_end_of_an_epoch_is_answered(cluster: ReplicaCluster) -> None:
    await cluster[1].produce(make_batch(2))
    cluster.change(leader=1)
    await until(lambda: cluster[1].replica().machine.leader_epoch == 1)
    await cluster[1].produce(make_batch(3))
    ask = [EpochQuery(P0, 0), EpochQuery(P0, 1), EpochQuery(P0, 7)]
    answers = cluster[1].manager.offsets.end_offset_for_epoch(ask)
    assert [(a.leader_epoch, a.offset) for a in answers] == [(0, 2), (1, 5), (-1, -1)]


@with_topic((1, 2), brokers=3)
async def test_offsets_of_a_replica_that_is_not_here_or_is_offline_are_refused(
    cluster: ReplicaCluster,
) -> None:
    async def refused(node: Node, partition: PartitionId) -> ErrorCode:
        query = OffsetQuery(partition, EARLIEST_TIMESTAMP)
        (found,) = await node.process.run(node.manager.offsets.list_offsets([query]))
        (end,) = node.manager.offsets.end_offset_for_epoch([EpochQuery(partition, 0)])
        assert end.error is found.error
        assert (end.offset, found.offset) == (-1, -1)
        return found.error

    assert await refused(cluster[3], P0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = P0._replace(partition=1)
    assert await refused(cluster[1], unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node = cluster[1]
    node.process.loop.call_soon(node.manager.take_down, node.replica(), ReplicaState.OFFLINE)
    await until(lambda: node.replica().state is ReplicaState.OFFLINE)
    assert await refused(node, P0) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("then", ["led by another", "led anew", "offline"])
@pytest.mark.parametrize("timestamp_ms", [500, MAX_TIMESTAMP])
@with_topic
async def test_a_search_by_time_ends_with_the_leadership_in_which_it_began(
    cluster: ReplicaCluster, timestamp_ms: int, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has found may have been cut off the log meanwhile."""
    node = cluster[1]
    await node.produce(make_batch(3))
    replica = node.replica()
    may_go_on = asyncio.Event()
    name = "max_timestamp_offset" if timestamp_ms == MAX_TIMESTAMP else "offset_for_timestamp"
    search = getattr(replica.log, name)

    async def slowly(asked: int) -> object:
        found = await search(asked)
        await may_go_on.wait()
        return found

    monkeypatch.setattr(type(replica.log), name, lambda _, asked: slowly(asked))
    searching = asyncio.ensure_future(list_offset(node, timestamp_ms))
    await asyncio.sleep(0.1)
    assert not searching.done()
    if then == "offline":
        node.process.loop.call_soon(node.manager.take_down, replica, ReplicaState.OFFLINE)
        await until(lambda: replica.state is ReplicaState.OFFLINE)
    else:
        for leader in (2,) if then == "led by another" else (2, 1):
            cluster.change(leader=leader)
            await until(lambda leader=cluster[leader]: leader.replica().machine.is_leader)  # type: ignore[misc]
        await until(lambda: replica.machine.is_leader is (then == "led anew"))
    node.process.loop.call_soon(may_go_on.set)
    found = await searching
    assert found.offset == -1
    assert found.error is (
        ErrorCode.KAFKA_STORAGE_ERROR if then == "offline" else ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
