"""A partition as its coordinator writes it: what it remembers of confirmed transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.replication import hosted as hosted_partitions
from broker.replication.hosted import VERIFIED_MAX, HostedPartition
from broker.replication.replica import ReplicaState
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, TopicPartition
from storage.compaction.rewriting import emptied
from tests.support.batches import header_of, make_batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster
from tests.support.replicated_transactions import NEW, Coordinator, batch, marker
from tests.support.replication import with_topic
from tests.support.timing import until


class Confirming:
    """Says yes to everything."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        done(ErrorCode.NONE)


def confirm(hosted: HostedPartition, producer_id: int, epoch: int = 0) -> None:
    told: list[ErrorCode] = []
    hosted.begin_transaction("t", producer_id, epoch, adds=True, done=told.append)
    assert told == [ErrorCode.NONE]


@with_topic
async def test_producers_that_never_write_are_forgotten(cluster: ReplicaCluster) -> None:
    leader = cluster[1]
    leader.manager.produce.transactional.verifier = Confirming()
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None
    for producer_id in range(VERIFIED_MAX):
        confirm(hosted, producer_id)
    confirm(hosted, 0, epoch=1)  # it is the newest now
    assert hosted.transaction_refusal(1, 0) is ErrorCode.NONE
    confirm(hosted, VERIFIED_MAX)
    assert hosted.transaction_refusal(1, 0) is ErrorCode.INVALID_TXN_STATE, "the oldest"
    for producer_id, epoch in ((0, 1), (2, 0), (VERIFIED_MAX, 0)):
        assert hosted.transaction_refusal(producer_id, epoch) is ErrorCode.NONE
    assert hosted.transaction_refusal(0, 0) is ErrorCode.INVALID_TXN_STATE


@with_topic
async def test_a_marker_ends_a_verification_that_is_under_way(cluster: ReplicaCluster) -> None:
    """Also in a partition that does not know the producer yet, and only for that transaction."""

    leader = cluster[1]
    coordinator = Coordinator(leader)
    coordinator.verdict = None
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None
    late: list[ErrorCode] = []
    following: list[ErrorCode] = []
    hosted.begin_transaction("t", 7, 5, adds=False, done=late.append)
    await leader.mark(marker(commit=False, epoch=5, version=0))
    hosted.begin_transaction("t", 7, 5, adds=False, done=following.append)
    first, second = coordinator.waiting
    second(ErrorCode.NONE)
    first(ErrorCode.NONE)
    assert (late, following) == ([ErrorCode.INVALID_TXN_STATE], [ErrorCode.NONE])
    assert hosted.transaction_refusal(7, 5) is ErrorCode.NONE
    await leader.mark(marker(commit=False, epoch=5, version=0))
    assert hosted.transaction_refusal(7, 5) is ErrorCode.INVALID_TXN_STATE, "not used in time"


@with_topic
async def test_the_records_of_a_log_that_begins_within_a_batch_begin_there(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    await leader.produce(make_batch(5))
    await leader.delete(2)
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None

    async def read() -> list[int]:
        return [each.offset async for loaded in hosted.records() for each in loaded.records]

    assert await leader.process.run(read()) == [2, 3, 4]


@pytest.mark.parametrize("commit", [True, False])
@with_topic
async def test_the_ends_of_transactions_are_loaded_with_what_they_say(
    cluster: ReplicaCluster, commit: bool
) -> None:
    leader = cluster[1]
    Coordinator(leader)
    await leader.produce(batch(0, 2), transaction=NEW)
    await leader.produce()
    assert await leader.mark(marker(commit=commit)) == [ErrorCode.NONE]
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None

    async def read() -> list[tuple[list[int], int, bool | None]]:
        return [
            (
                [each.offset for each in loaded.records],
                loaded.producer_id,
                None if loaded.marker is None else loaded.marker.commit,
            )
            async for loaded in hosted.records()
        ]

    found = await leader.process.run(read())
    assert found == [([0, 1], 7, None), ([2], -1, None), ([3], 7, commit)]


@with_topic
async def test_batches_that_compaction_has_emptied_are_passed_over(cluster: ReplicaCluster) -> None:
    """They stay for the sake of their producer's sequence."""
    leader = cluster[1]
    await leader.produce(make_batch(2))
    empty = emptied(header_of(make_batch(producer=(7, 0, 0), base_offset=2)))
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None

    async def read() -> list[int]:
        leader.replica().log.append_as_follower(empty)
        leader.replica().log.append_as_follower(make_batch(1, base_offset=3))
        return [each.offset async for loaded in hosted.records() for each in loaded.records]

    assert await leader.process.run(read()) == [0, 1, 3]


@with_topic
async def test_only_a_leader_with_a_log_hosts_a_partition(cluster: ReplicaCluster) -> None:
    leader, follower = cluster[1], cluster[2]
    assert leader.manager.hosting.host(PartitionId(TOPIC_ID, 7)) is None, "there is none"
    assert follower.manager.hosting.host(P0) is None
    assert leader.manager.hosting.host(P0) is not None

    async def fail() -> None:
        leader.manager.take_down(leader.replica(), ReplicaState.OFFLINE)

    await leader.process.run(fail())
    assert leader.replica().machine.is_leader
    assert leader.manager.hosting.host(P0) is None


def may_answer(hosted: HostedPartition) -> bool:
    assert hosted.refusal in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return hosted.refusal is ErrorCode.NONE


@with_topic
async def test_a_coordinator_of_an_earlier_leadership_may_answer_nothing(
    cluster: ReplicaCluster,
) -> None:
    """Another leader may have written records that its state lacks."""
    leader = cluster[1]
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None
    assert may_answer(hosted)
    leader.lease = False
    assert not may_answer(hosted)
    leader.lease = True
    cluster.change(leader=2)
    await until(lambda: not leader.replica().machine.is_leader)
    assert not may_answer(hosted)
    cluster.change(leader=1)
    await until(lambda: leader.replica().machine.is_leader)
    assert not may_answer(hosted)
    anew = leader.manager.hosting.host(P0)
    assert anew is not None
    assert may_answer(anew)


def refusals(hosted: HostedPartition) -> tuple[ErrorCode, ErrorCode]:
    """To answer, and to write."""
    return hosted.refusal, hosted.write_refusal


@with_topic
async def test_a_coordinator_hears_why_it_cannot_write_now(cluster: ReplicaCluster) -> None:
    leader = cluster[1]
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None
    assert refusals(hosted) == (ErrorCode.NONE, ErrorCode.NONE)
    cluster.change(isr=(1,))
    await until(lambda: leader.replica().machine.is_under_min_isr)
    assert refusals(hosted) == (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)
    cluster.change(isr=(1, 2))
    await until(lambda: hosted.write_refusal is ErrorCode.NONE)
    leader.lease = False
    assert refusals(hosted) == (ErrorCode.NOT_LEADER_OR_FOLLOWER,) * 2


@with_topic
async def test_a_confirmed_transaction_is_refused_in_an_earlier_epoch_and_leadership(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    leader.manager.produce.transactional.verifier = Confirming()
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None
    await leader.produce(make_batch(producer=(7, 5, 0)))
    for epoch in (4, 5):
        confirm(hosted, 7, epoch)
        assert hosted.transaction_refusal(7, epoch) is (
            ErrorCode.INVALID_PRODUCER_EPOCH if epoch == 4 else ErrorCode.NONE
        )
    cluster.change(leader=1)
    await until(lambda: leader.replica().machine.leader_epoch == 1)
    assert hosted.transaction_refusal(7, 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    told: list[ErrorCode] = []
    hosted.begin_transaction("t", 7, 5, adds=True, done=told.append)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("at", ["the first records", "a read"])
@with_topic
async def test_a_coordinator_loads_nothing_more_once_it_is_deposed(
    cluster: ReplicaCluster, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_partitions, "_RECORDS_A_TURN", 1)
    leader = cluster[1]
    await leader.produce(make_batch(3))
    hosted = leader.manager.hosting.host(P0)
    assert hosted is not None
    loaded: list[int] = []

    def depose() -> None:
        cluster.change(leader=1)  # in a later epoch, in the next turn of the event loop

    async def load() -> None:
        if at == "a read":
            leader.disk.faults.cold_read = 1.0
            depose()
        async for each in hosted.records():
            loaded.extend(record.offset for record in each.records)
            depose()

    with pytest.raises(ApiError) as refused:
        await leader.process.run(load())
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert loaded == ([] if at == "a read" else [0])


@with_topic
async def test_an_earlier_coordinator_takes_no_marker_from_a_later_one(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    heard: list[str] = []

    def watch(name: str) -> HostedPartition:
        hosted = leader.manager.hosting.host(P0)
        assert hosted is not None
        hosted.watch(lambda: None, lambda offset, producer_id, end: heard.append(name))
        return hosted

    earlier = watch("earlier")
    cluster.change(leader=1)
    await until(lambda: leader.replica().machine.leader_epoch == 1)
    later = watch("later")
    earlier.unwatch()
    await leader.mark(marker())
    assert heard == ["later"]
    later.unwatch()
    await leader.mark(marker(epoch=7))
    assert heard == ["later"]
