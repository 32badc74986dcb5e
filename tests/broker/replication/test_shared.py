"""A partition as share groups read it: what is delivered of it, up to where, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from broker.replication.replica import ReplicaState
from broker.replication.shared import SharedBatch, SharedPartition
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.cold_range import ColdRange
from storage.log_types import ReadResult
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, TOPIC_ID, Node, ReplicaCluster
from tests.support.replicated_transactions import NEW, Coordinator, batch, marker
from tests.support.replication import with_topic
from tests.support.timing import until

LOG = "/data/orders-0/00000000000000000000.log"


def shared(node: Node) -> SharedPartition:
    found = node.manager.hosting.share(P0)
    assert found is not None
    return found


async def read(
    node: Node, offset: int = 0, *, committed: bool = False, max_bytes: int = 1 << 20
) -> list[tuple[int, int, bool]]:
    """The first and the last offset of each batch, and whether a member may see it."""
    found: Sequence[SharedBatch] = await node.process.run(
        shared(node).read(offset, max_bytes, read_committed=committed)
    )
    return [(each.first, each.last, each.is_deliverable) for each in found]


async def read_all(
    node: Node, offset: int = 0, *, committed: bool = False
) -> list[tuple[int, int, bool]]:
    """A read may return less than there is."""
    found: list[tuple[int, int, bool]] = []
    while more := await read(node, offset, committed=committed):
        found += more
        offset = more[-1][1] + 1
    return found


@pytest.mark.parametrize("commit", [True, False])
@with_topic
async def test_records_of_an_aborted_transaction_are_not_delivered_to_readers_of_committed_ones(
    cluster: ReplicaCluster, commit: bool
) -> None:
    Coordinator(cluster[1])
    leader = cluster[1]
    await leader.produce(batch(0, producer_id=8), transaction=NEW)
    await leader.mark(marker(commit=True, producer_id=8))  # offsets 0 and 1
    await leader.produce(batch(0, 2), transaction=NEW)  # 2 and 3
    await leader.produce(batch(0, producer_id=9), transaction=NEW)  # 4
    await leader.produce(batch(2), transaction=NEW)  # 5
    await leader.produce()  # 6
    assert await read_all(leader, committed=True) == [(0, 0, True), (1, 1, False)]
    everything = [(2, 3, True), (4, 4, True), (5, 5, True), (6, 6, True)]
    assert await read_all(leader, 2) == everything
    await leader.mark(marker(commit=commit))  # 7
    await leader.mark(marker(commit=True, producer_id=9))  # 8
    markers = [(7, 7, False), (8, 8, False)]
    assert await read_all(leader, 2) == [*everything, *markers]
    told = everything if commit else [(2, 3, False), (4, 4, True), (5, 5, False), (6, 6, True)]
    assert await read_all(leader, 2, committed=True) == [*told, *markers]
    assert (await read_all(leader, 5, committed=True))[0] == (5, 5, commit)
    await leader.produce(batch(0, epoch=6), transaction=NEW)  # 9, of the next transaction
    await leader.mark(marker(epoch=7))  # 10
    assert await read_all(leader, 9, committed=True) == [(9, 9, True), (10, 10, False)]


@with_topic
async def test_a_batch_is_read_as_it_is_up_to_the_high_watermark(cluster: ReplicaCluster) -> None:
    leader = cluster[1]
    sent = [make_batch(3), make_batch(2)]
    for each in sent:
        await leader.produce(bytearray(each))
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await leader.produce(acks=1)
    assert await read(leader) == [(0, 2, True), (3, 4, True)]
    assert await read(leader, 1, max_bytes=1) == [(0, 2, True)], "of any size"
    for offset in (5, 6):
        assert await read(leader, offset) == []
    found = await leader.process.run(shared(leader).read(3, 1 << 20, read_committed=False))
    assert [len(each.data) for each in found] == [len(sent[1])]
    assert shared(leader).start_offset == 0


@with_topic
async def test_a_time_has_the_offset_of_its_first_record_below_the_high_watermark(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    for timestamp_ms in (1_000, 3_000):
        await leader.produce(make_batch(timestamp_ms=timestamp_ms))
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    for timestamp_ms in (4_000, 5_000):
        await leader.produce(make_batch(timestamp_ms=timestamp_ms), acks=1)
    for time_ms, offset in ((500, 0), (1_000, 0), (1_001, 1), (3_001, 2), (4_001, 2), (9_000, 2)):
        assert await leader.process.run(shared(leader).offset_of_time(time_ms)) == offset


@pytest.mark.parametrize("asks", ["read", "time"])
@with_topic
async def test_a_log_that_cannot_be_read_is_given_up(cluster: ReplicaCluster, asks: str) -> None:
    leader = cluster[1]
    await leader.produce(make_batch(size=300))
    leader.disk.spoil(LOG, 100)
    log = shared(leader)
    asked = log.offset_of_time(0) if asks == "time" else log.read(0, 100, read_committed=False)
    with pytest.raises(ApiError) as caught:
        await leader.process.run(asked)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert leader.corrupt == [P0]


@pytest.mark.parametrize("moves", [False, True])
@with_topic
async def test_a_leader_that_is_replaced_while_the_device_reads_shows_nothing(
    cluster: ReplicaCluster, moves: bool
) -> None:
    leader = cluster[1]
    await leader.produce()
    log = leader.replica().log
    whole, warmed = log.read, list[ColdRange]()

    def cold_read(offset: int, max_bytes: int, **more: object) -> ReadResult:
        if not warmed:
            return ReadResult(b"", offset, ColdRange(log.segments.active.path, 0, 100))
        return cast(Callable[..., ReadResult], whole)(offset, max_bytes, **more)

    async def warm(cold: ColdRange) -> None:
        if moves:
            cluster.change(leader=2)
            await until(lambda: not leader.replica().machine.is_leader)
        warmed.append(cold)

    log.read, log.warm = cold_read, warm  # type: ignore[method-assign]
    if not moves:
        assert await read(leader) == [(0, 0, True)]
        return
    with pytest.raises(ApiError) as caught:
        await read(leader)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@with_topic
async def test_only_a_leader_with_a_log_shares_a_partition_and_wakes_its_readers(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    for node, partition in ((cluster[2], P0), (leader, PartitionId(TOPIC_ID, 7))):
        assert node.manager.hosting.share(partition) is None
    log, woken = shared(leader), list[int]()
    log.watch("a group", lambda: woken.append(log.end_offset(read_committed=True)))
    await leader.produce()
    await until(lambda: 1 in woken)
    log.unwatch("a group")
    log.unwatch("a group")
    count = len(woken)
    await leader.produce()
    assert len(woken) == count
    leader.process.loop.call_soon(leader.manager.take_down, leader.replica(), ReplicaState.OFFLINE)
    await asyncio.sleep(0.1)
    assert leader.manager.hosting.share(P0) is None
    assert log.refusal is ErrorCode.NOT_LEADER_OR_FOLLOWER
