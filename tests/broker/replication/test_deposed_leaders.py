"""A leader that has lost its partition: before the metadata say so here, and while it works."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.types import (
    EARLIEST_TIMESTAMP,
    NO_HINT,
    EpochQuery,
    LeaderHint,
    OffsetQuery,
)
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster
from tests.support.replicated_transactions import (
    NEW,
    OLD,
    Coordinator,
    batch,
    marker,
    spans,
    transactional,
)
from tests.support.replication import ends, with_topic
from tests.support.timing import until

P1 = PartitionId(TOPIC_ID, 1)


class Token:
    """Hears what becomes of a batch that a coordinator has appended."""

    def __init__(self) -> None:
        self.outcome: ErrorCode | None = None

    def acknowledge(self) -> None:
        self.outcome = ErrorCode.NONE

    def refuse(self, error: ErrorCode) -> None:
        self.outcome = error


# ----------------------------------- the controller has said so, and the metadata are on their way


@with_topic((1, 2, 3), (2, 1, 3))
async def test_a_deposed_leader_appends_nothing_and_names_no_leader(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    await node.produce()
    node.deposed = True
    for acks in (0, 1, -1):
        refused = await node.produce(acks=acks)
        assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.leader == NO_HINT, "it would name itself"
    elsewhere = await node.produce(partition=P1)
    assert (elsewhere.error, elsewhere.leader) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        LeaderHint(2, 0),
    )
    assert ends(cluster, 1) == [1]
    node.deposed = False
    assert (await node.produce()).base_offset == 1
    elsewhere = await node.produce(partition=P1)
    assert elsewhere.leader == LeaderHint(2, 0)


@with_topic
async def test_a_deposed_leader_shows_nothing(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    await node.produce(make_batch(producer=(7, 0, 0)))
    node.deposed = True
    fetched = await node.fetch(0)
    assert (fetched.error, fetched.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    fetched = await node.fetch(0, replica_id=2, replica_epoch=cluster[2].epoch)
    assert (fetched.error, fetched.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    queries = [OffsetQuery(P0, EARLIEST_TIMESTAMP)]
    (found,) = await node.process.run(node.manager.offsets.list_offsets(queries))
    assert (found.error, found.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    (end,) = node.manager.offsets.end_offset_for_epoch([EpochQuery(P0, 0)])
    assert (end.error, end.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    with pytest.raises(ApiError) as refused:
        node.manager.descriptions.producer(P0, 7, -1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.deposed = False
    known = node.manager.descriptions.producer(P0, 7, -1)
    assert known.entry is not None
    assert (known.entry.producer_id, known.high_watermark) == (7, 1)


@with_topic
async def test_a_deposed_leader_deletes_nothing(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    await node.produce(make_batch(2))
    node.deposed = True
    assert (await node.delete(1)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.starts() == (0, 0)
    node.deposed = False
    assert (await node.delete(1)).low_watermark == 1


@with_topic
async def test_who_waits_at_a_leader_that_is_deposed_is_sent_away_at_the_deadline(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    for min_bytes in (1, 1000):
        waiting = asyncio.ensure_future(node.fetch(0, max_wait_ms=300, min_bytes=min_bytes))
        await asyncio.sleep(0.1)
        node.deposed = True
        assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        node.deposed = False


@with_topic
async def test_the_followers_of_a_deposed_leader_follow_again_when_it_leads_anew(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    node.deposed = True
    cluster.change(isr=(1, 2, 3))  # the parked fetches look again, and are refused
    await asyncio.sleep(0.5)
    node.deposed = False
    assert (await node.produce()).error is ErrorCode.NONE
    assert ends(cluster, 1, 2) == [1, 1]


@with_topic
async def test_the_coordinator_at_a_deposed_leader_answers_and_appends_nothing(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    hosted = node.manager.hosting.host(P0)
    assert hosted is not None
    node.deposed = True
    assert hosted.refusal is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert hosted.write_refusal is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError) as refused:
        hosted.append(make_batch(), Token())
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await node.mark(marker()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert ends(cluster, 1) == [0]


# ------------------------------------------------------------------- a newer leader epoch arrives


@with_topic
async def test_the_coordinator_of_an_earlier_epoch_appends_nothing_in_a_later_one(
    cluster: ReplicaCluster,
) -> None:
    """The broker leads again, and another one may have appended in between."""
    node = cluster[1]
    earlier = node.manager.hosting.host(P0)
    assert earlier is not None
    for broker_id in (2, 1):
        cluster.change(leader=broker_id)
        await until(lambda leader=cluster[broker_id]: leader.replica().machine.is_leader)  # type: ignore[misc]
    token = Token()
    with pytest.raises(ApiError) as refused:
        earlier.append(make_batch(), token)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ends(cluster, 1, 2, 3) == [0, 0, 0]
    assert token.outcome is None
    present = node.manager.hosting.host(P0)
    assert present is not None

    async def append() -> int:
        return present.append(make_batch(), token)

    assert await node.process.run(append()) == 0
    await until(lambda: token.outcome is ErrorCode.NONE)


@with_topic
async def test_what_waits_at_a_leader_is_refused_when_it_is_deposed_and_the_new_one_has_all(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    await node.produce()
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    waiting = asyncio.ensure_future(node.produce(make_batch(3)))
    token, hosted = Token(), node.manager.hosting.host(P0)
    assert hosted is not None

    async def append() -> int:
        return hosted.append(make_batch(), token)

    await asyncio.sleep(0.1)
    assert await node.process.run(append()) == 4
    cluster.change(leader=2, isr=(2, 3))
    refused = await waiting
    assert (refused.error, refused.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert refused.leader == LeaderHint(2, 1)
    assert token.outcome is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await until(lambda: cluster[2].replica().machine.is_leader)
    assert (await cluster[2].produce()).base_offset == 1
    cluster.simulation.fabric.heal()
    await until(lambda: ends(cluster, 1, 2, 3) == [2, 2, 2])
    assert spans(await cluster[2].fetch(0)) == [0, 1]
    assert node.replica().log.epochs.latest_epoch == 1


@pytest.mark.parametrize("ended_by", ["deposed", "led by another"])
@transactional
async def test_a_batch_whose_verdict_comes_after_the_leadership_is_not_appended(
    cluster: ReplicaCluster, coordinator: Coordinator, ended_by: str
) -> None:
    node = cluster[1]
    coordinator.verdict = None
    waiting = asyncio.ensure_future(node.produce(batch(0), transaction=NEW))
    await until(lambda: len(coordinator.waiting) == 1)
    if ended_by == "deposed":
        node.deposed = True
    else:
        cluster.change(leader=2)
        await until(lambda: not node.replica().machine.is_leader)
    await coordinator.answer(node)
    assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ends(cluster, 1, 2, 3) == [0, 0, 0]


@transactional
async def test_the_markers_of_a_deposed_leader_are_written_by_the_new_one(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    node, successor = cluster[1], cluster[2]
    await node.produce(batch(0), transaction=OLD)
    await asyncio.sleep(1)  # the others know that it is committed
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    waiting = asyncio.ensure_future(node.mark(marker(commit=True)))
    await asyncio.sleep(0.1)
    assert ends(cluster, 1, 2) == [2, 1]
    cluster.change(leader=2, isr=(2, 3))
    assert await waiting == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    await until(lambda: successor.replica().machine.is_leader)
    fetched = await successor.fetch(0, read_committed=True)
    assert (spans(fetched), fetched.last_stable_offset) == ([], 0)
    assert await successor.mark(marker(commit=True)) == [ErrorCode.NONE]
    assert spans(await successor.fetch(0, read_committed=True)) == [0, 1]
    cluster.simulation.fabric.heal()
    await until(lambda: ends(cluster, 1, 2, 3) == [2, 2, 2])
    assert node.replica().log.producers.open_transactions() == []
