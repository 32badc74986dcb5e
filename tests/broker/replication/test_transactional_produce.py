"""Records of transactions: verified by a coordinator, decided by markers, and shown to readers."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication import transactional as transactional_batches
from broker.replication.types import (
    Marker,
    TransactionalWrite,
)
from broker.replication.verification import told_to_producer
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replicated_transactions import (
    NEW,
    OLD,
    Coordinator,
    batch,
    marker,
    spans,
    transactional,
)
from tests.support.timing import until


@pytest.mark.parametrize("commit", [True, False])
@transactional
async def test_a_transaction_is_shown_when_its_marker_is_committed(
    cluster: ReplicaCluster, coordinator: Coordinator, commit: bool
) -> None:
    leader = cluster[1]
    written = await leader.produce(batch(0, 2), transaction=NEW)
    assert (written.error, written.base_offset) == (ErrorCode.NONE, 0)
    assert (await leader.produce(batch(2), transaction=NEW)).base_offset == 2
    assert (await leader.produce()).base_offset == 3  # of nobody's transaction
    assert coordinator.asked == [("t", 7, 5, TopicPartition("orders", 0), True)]
    fetched = await leader.fetch(0, read_committed=True)
    assert (fetched.high_watermark, fetched.last_stable_offset) == (4, 0)
    assert spans(fetched) == []
    assert spans(await leader.fetch(0)) == [0, 2, 3]
    assert await leader.mark(marker(commit=commit)) == [ErrorCode.NONE]
    fetched = await leader.fetch(0, read_committed=True)
    assert (fetched.high_watermark, fetched.last_stable_offset) == (5, 5)
    assert spans(fetched) == [0, 2, 3, 4]
    aborted = [(each.producer_id, each.first_offset) for each in fetched.aborted]
    assert aborted == ([] if commit else [(7, 0)])
    assert list((await leader.fetch(3, read_committed=True)).aborted) == (
        [] if commit else list(fetched.aborted)
    )
    assert (await leader.fetch(0)).aborted == ()
    follower = await leader.fetch(
        0, epoch=0, replica_id=2, replica_epoch=cluster[2].epoch, read_committed=True
    )
    assert (spans(follower), follower.aborted) == ([0, 2, 3, 4], ()), "a follower gets everything"
    replicas = [node.replica() for node in cluster.nodes.values()]
    await until(lambda: all(each.machine.last_stable_offset == 5 for each in replicas))
    assert all(each.log.producers.first_open_offset > 5 for each in replicas)


@transactional
async def test_a_reader_of_committed_records_waits_for_the_marker(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    await leader.produce(batch(0), transaction=NEW)
    reader = asyncio.ensure_future(
        leader.fetch(0, read_committed=True, max_wait_ms=10_000, min_bytes=100)
    )
    await asyncio.sleep(0.2)
    await leader.produce()
    await asyncio.sleep(0.2)
    assert not reader.done()
    await leader.mark(marker())
    assert spans(await reader) == [0, 1, 2]


# --------------------------------------------------------------------------- verification


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_the_coordinator_does_not_confirm_is_refused(
    verdict: ErrorCode, told: ErrorCode
) -> None:
    assert told_to_producer(verdict) is told


@transactional
async def test_sequences_go_on_in_the_next_transaction_of_an_epoch(
    cluster: ReplicaCluster,
) -> None:
    """Only markers of KIP-890 begin another epoch, in which they begin with 0."""
    leader = cluster[1]
    await leader.produce(batch(0, 2), transaction=NEW)
    await leader.mark(marker(epoch=5, version=0))
    going_on = await leader.produce(batch(2), transaction=NEW)
    assert (going_on.error, going_on.base_offset) == (ErrorCode.NONE, 3)


@transactional
async def test_a_refused_batch_is_not_in_the_log_and_may_come_again(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    for transaction in (OLD, NEW):
        coordinator.verdict = ErrorCode.CONCURRENT_TRANSACTIONS
        some = batch(0, producer_id=len(coordinator.asked))
        refused = await leader.produce(some, transaction=transaction)
        assert (refused.error, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert refused.message == "the transaction could not be verified: CONCURRENT_TRANSACTIONS"
        coordinator.verdict = ErrorCode.NONE
    assert leader.replica().log.end_offset == 0
    assert (await leader.produce(batch(0), transaction=OLD)).error is ErrorCode.NONE
    assert [asked[-1] for asked in coordinator.asked] == [False, True, False]


@transactional
async def test_a_batch_of_no_transactional_id_is_refused(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    refused = await cluster[1].produce(batch(0))
    assert refused.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert coordinator.asked == []


@transactional
async def test_later_batches_of_the_producer_wait_behind_the_first_and_others_do_not(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    coordinator.verdict = None
    first, second = (
        asyncio.ensure_future(leader.produce(batch(n), transaction=NEW)) for n in (0, 1)
    )
    await asyncio.sleep(0.1)
    assert len(coordinator.asked) == 1
    assert (await leader.produce()).base_offset == 0
    other = batch(0, producer_id=8)
    third = asyncio.ensure_future(leader.produce(other, transaction=NEW))
    await asyncio.sleep(0.1)
    assert len(coordinator.asked) == 2
    await coordinator.answer(leader)
    results = [await each for each in (first, second, third)]
    assert [(each.error, each.base_offset) for each in results] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.NONE, 2),
        (ErrorCode.NONE, 3),
    ]
    assert len(coordinator.asked) == 2


@transactional
async def test_what_waits_behind_a_refused_batch_is_refused_with_it(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    coordinator.verdict = None
    waiting = [asyncio.ensure_future(leader.produce(batch(n), transaction=OLD)) for n in (0, 1)]
    await asyncio.sleep(0.1)
    await coordinator.answer(leader, ErrorCode.NOT_COORDINATOR)
    assert [(await each).error for each in waiting] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    # The second cannot become the first, although the log does not know the producer.
    coordinator.verdict = ErrorCode.NONE
    early = await leader.produce(batch(1), transaction=OLD)
    assert early.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await leader.produce(batch(1, epoch=6), transaction=OLD)).error is ErrorCode.NONE


@transactional
async def test_a_batch_that_has_timed_out_is_not_appended_by_a_late_verdict(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    coordinator.verdict = None
    late = await leader.produce(batch(0), transaction=NEW, timeout_ms=100)
    assert late.error is ErrorCode.REQUEST_TIMED_OUT
    await coordinator.answer(leader)
    await asyncio.sleep(0.1)
    assert leader.replica().log.end_offset == 0


@transactional
async def test_a_batch_that_has_timed_out_is_neither_refused_nor_appended_by_a_late_marker(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    coordinator.verdict = None
    late = [
        await leader.produce(batch(0, epoch=epoch), transaction=OLD, timeout_ms=100)
        for epoch in (5, 6)
    ]
    failed = leader.manager.hosted.counters.failed_produce_total
    coordinator.verdict = ErrorCode.NONE
    assert await leader.mark(marker(commit=False, epoch=5, version=0)) == [ErrorCode.NONE]
    assert [each.error for each in late] == [ErrorCode.REQUEST_TIMED_OUT] * 2, "as it was answered"
    assert leader.manager.hosted.counters.failed_produce_total == failed
    assert leader.replica().log.end_offset == 1, "the marker"


@transactional
async def test_the_first_refused_sequence_of_the_newest_producers_is_remembered(
    cluster: ReplicaCluster, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One refused batch of many producers costs bounded memory. The oldest is forgotten."""
    monkeypatch.setattr(transactional_batches, "_REMEMBERED", 2)
    leader = cluster[1]
    coordinator.verdict = ErrorCode.NOT_COORDINATOR
    for producer_id, sequence in ((7, 4), (8, 4), (7, 2), (7, 3), (9, 4)):
        some = batch(sequence, producer_id=producer_id)
        refused = await leader.produce(some, transaction=OLD)
        assert refused.error is (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if (producer_id, sequence) == (7, 3)
            else ErrorCode.NOT_ENOUGH_REPLICAS
        )
    coordinator.verdict = ErrorCode.NONE
    for producer_id, sequence, told in (
        (7, 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (9, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (8, 5, ErrorCode.NONE),  # forgotten
        (7, 2, ErrorCode.NONE),
        (9, 4, ErrorCode.NONE),
    ):
        some = batch(sequence, producer_id=producer_id)
        assert (await leader.produce(some, transaction=OLD)).error is told


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (marker(epoch=5, version=1), ErrorCode.INVALID_TXN_STATE),
        (marker(epoch=6, version=1), ErrorCode.INVALID_PRODUCER_EPOCH),  # the producer is fenced
        (marker(epoch=6), ErrorCode.INVALID_PRODUCER_EPOCH),
        (marker(epoch=5), ErrorCode.NONE),  # it ended the transaction of epoch 4
    ],
)
@transactional
async def test_a_verdict_counts_for_nothing_once_the_transaction_is_ended(
    cluster: ReplicaCluster, coordinator: Coordinator, end: Marker, told: ErrorCode
) -> None:
    leader = cluster[1]
    before = 4 if end.transaction_version == 2 and end.producer_epoch == 5 else 5
    await leader.produce(batch(0, epoch=before), transaction=NEW)
    await leader.mark(marker(epoch=before + (before == 4), version=2 if before == 4 else 1))
    if before == 4:  # the same marker again, as late as it may come
        before_end = leader.replica().log.end_offset
    coordinator.verdict = None
    waiting = asyncio.ensure_future(leader.produce(batch(1 if before == 5 else 0), transaction=OLD))
    await asyncio.sleep(0.1)
    assert await leader.mark(end) == [ErrorCode.NONE]
    if before == 4:
        assert leader.replica().log.end_offset == before_end
    await coordinator.answer(leader)
    assert (await waiting).error is told


@pytest.mark.parametrize("known_in", [None, 4, 5])
@transactional
async def test_a_marker_ends_the_verification_of_a_first_batch(
    cluster: ReplicaCluster, coordinator: Coordinator, known_in: int | None
) -> None:
    """The client keeps its epoch, as before KIP-890. The partition may never have seen the
    producer, or only in an earlier epoch."""

    leader = cluster[1]
    sequence = 0
    if known_in is not None:
        await leader.produce(batch(0, epoch=known_in), transaction=OLD)
        await leader.mark(marker(epoch=known_in, version=0))
        sequence = int(known_in == 5)
    coordinator.verdict = None
    late = asyncio.ensure_future(leader.produce(batch(sequence), transaction=OLD))
    await until(lambda: len(coordinator.waiting) == 1)
    assert await leader.mark(marker(commit=False, epoch=5, version=0)) == [ErrorCode.NONE]
    refused = await late
    assert refused.error is ErrorCode.INVALID_TXN_STATE
    assert "producer 7 in epoch 5" in (refused.message or "")

    # The next transaction of the epoch asks anew, whatever the late verdict says.
    following = asyncio.ensure_future(leader.produce(batch(sequence), transaction=OLD))
    await until(lambda: len(coordinator.waiting) == 2)
    first, second = coordinator.waiting
    coordinator.waiting = [first]
    end_offset = leader.replica().log.end_offset
    await coordinator.answer(leader)
    assert leader.replica().log.end_offset == end_offset
    coordinator.waiting = [second]
    await coordinator.answer(leader)
    assert (await following).error is ErrorCode.NONE
    assert leader.replica().log.producers.open_transactions() == [(7, end_offset)]


@transactional
async def test_a_batch_of_the_next_epoch_outlasts_the_end_of_the_one_before(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    coordinator.verdict = None
    ended = asyncio.ensure_future(leader.produce(batch(0), transaction=OLD))
    following = asyncio.ensure_future(leader.produce(batch(0, epoch=6), transaction=OLD))
    await until(lambda: len(coordinator.waiting) == 1)
    coordinator.verdict = ErrorCode.NONE
    await leader.mark(marker(epoch=5, version=0))
    assert (await ended).error is ErrorCode.INVALID_TXN_STATE
    assert (await following).error is ErrorCode.NONE


@transactional
async def test_a_batch_that_is_there_already_is_not_asked_about(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    """Also when its transaction has ended since: the answer was lost."""

    leader = cluster[1]
    await leader.produce(batch(0, 2), transaction=OLD)
    await leader.mark(marker(epoch=5, version=1))
    coordinator.verdict = ErrorCode.INVALID_TXN_STATE
    again = await leader.produce(batch(0, 2), transaction=OLD)
    assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
    assert len(coordinator.asked) == 1
    assert leader.replica().log.end_offset == 3


@transactional
async def test_a_verdict_for_an_earlier_leadership_is_asked_for_anew(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    coordinator.verdict = None
    waiting = asyncio.ensure_future(leader.produce(batch(0), transaction=NEW))
    await until(lambda: len(coordinator.asked) == 1)
    for broker_id in (2, 1):
        cluster.change(leader=broker_id)
        node = cluster[broker_id]
        await until(lambda node=node: node.replica().machine.is_leader)  # type: ignore[misc]
    await coordinator.answer(leader)
    await until(lambda: len(coordinator.asked) == 2)
    await coordinator.answer(leader)
    assert (await waiting).error is ErrorCode.NONE


# --------------------------------------------------------------------------- epochs


@transactional
async def test_sequences_and_epochs_of_transactions(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]

    async def sent(some: bytearray, transaction: TransactionalWrite | None = NEW) -> ErrorCode:
        return (await leader.produce(some, transaction=transaction)).error

    # Each transaction has its own epoch, and begins with sequence 0, whatever is known.
    assert await sent(batch(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await sent(batch(0)) is ErrorCode.NONE
    assert await sent(batch(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    outside = batch(1, open_=False)
    assert await sent(outside, None) is ErrorCode.INVALID_TXN_STATE
    assert await leader.mark(marker(epoch=5)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await leader.mark(marker(epoch=4, version=1)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await leader.mark(marker(coordinator_epoch=3)) == [ErrorCode.NONE]
    entry = leader.replica().log.producers.get(7)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence) == (6, 3, -1)
    assert await sent(batch(1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await sent(batch(1, epoch=6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await sent(batch(0, epoch=6)) is ErrorCode.NONE
    late = marker(epoch=7, coordinator_epoch=2)
    assert await leader.mark(late) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    # The marker of the transaction before comes once more. It cannot end this one.
    assert await leader.mark(marker(coordinator_epoch=3)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert leader.replica().log.producers.is_open(7, 6)
    assert await leader.mark(marker(epoch=7, coordinator_epoch=3)) == [ErrorCode.NONE]
    assert await sent(batch(0, epoch=7, open_=False), None) is ErrorCode.NONE


@transactional
async def test_the_next_transaction_does_not_commit_one_whose_marker_was_lost(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    await leader.produce(batch(0, 2), transaction=NEW)  # an unclean election loses its end
    assert (await leader.produce(batch(0, epoch=6), transaction=NEW)).base_offset == 3
    assert await leader.mark(marker(epoch=7)) == [ErrorCode.NONE]
    fetched = await leader.fetch(0, read_committed=True)
    assert spans(fetched) == [0, 2, 3, 4]
    assert [(each.producer_id, each.first_offset) for each in fetched.aborted] == [(7, 0)]
    assert fetched.last_stable_offset == 5
    replicas = [node.replica() for node in cluster.nodes.values()]
    await until(lambda: all(each.machine.last_stable_offset == 5 for each in replicas))
    assert len(coordinator.asked) == 2


@pytest.mark.parametrize(("epoch", "version"), [(7, 2), (7, 0), (9, 2)])
@transactional
async def test_the_marker_of_a_later_transaction_commits_nothing_of_this_one(
    cluster: ReplicaCluster, coordinator: Coordinator, epoch: int, version: int
) -> None:
    leader = cluster[1]
    await leader.produce(batch(0, 2), transaction=NEW)
    assert await leader.mark(marker(epoch=epoch, version=version)) == [ErrorCode.NONE]
    fetched = await leader.fetch(0, read_committed=True)
    assert [(each.producer_id, each.first_offset) for each in fetched.aborted] == [(7, 0)]


@pytest.mark.parametrize(("epoch", "version"), [(5, 0), (6, 0), (6, 2)])
@transactional
async def test_a_marker_commits_the_transaction_before_it(
    cluster: ReplicaCluster, coordinator: Coordinator, epoch: int, version: int
) -> None:
    leader = cluster[1]
    await leader.produce(batch(0, 2), transaction=NEW)
    assert await leader.mark(marker(epoch=epoch, version=version)) == [ErrorCode.NONE]
    assert not (await leader.fetch(0, read_committed=True)).aborted


@transactional
async def test_markers_are_answered_in_order_each_for_itself(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    await leader.produce(batch(0), transaction=NEW)
    elsewhere = P0._replace(partition=9)
    errors = await leader.mark(
        marker(partition=elsewhere), marker(), marker(producer_id=8, epoch=0)
    )
    assert errors == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NONE,  # of a producer without records here
    ]
    assert await cluster[2].mark(marker()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert await leader.mark() == []


@transactional
async def test_a_marker_waits_to_be_committed_and_decides_nothing_before(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader = cluster[1]
    await leader.produce(batch(0), transaction=NEW)
    for other in ("b2", "b3"):
        cluster.simulation.fabric.cut("b1", other)
        cluster.simulation.fabric.cut(other, "b1")
    marking = asyncio.ensure_future(leader.mark(marker()))
    await asyncio.sleep(0.2)
    machine = leader.replica().machine
    assert (machine.log.end_offset, machine.high_watermark) == (2, 1)
    assert (machine.last_stable_offset, marking.done()) == (0, False)
    cluster.simulation.fabric.heal()
    assert await marking == [ErrorCode.NONE]
    assert machine.last_stable_offset == 2


@transactional
async def test_a_leader_without_a_lease_reports_no_marker_as_written(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    """The marker is committed. But a leader that may have been replaced answers for nothing, and
    the coordinator asks its successor, which knows the marker."""
    leader = cluster[1]
    await leader.produce(batch(0), transaction=NEW)
    leader.lease = False
    assert await leader.mark(marker()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    machine = leader.replica().machine
    assert (machine.log.end_offset, machine.high_watermark) == (2, 2)
    leader.lease = True
    assert await leader.mark(marker()) == [ErrorCode.NONE]
    assert machine.log.end_offset == 2


@transactional
async def test_followers_serve_readers_of_committed_records(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    leader, follower = cluster[1], cluster[2]
    await leader.produce(batch(0), transaction=NEW)
    await leader.produce()
    await until(lambda: follower.replica().machine.high_watermark == 2)
    asked = await follower.fetch(0, read_committed=True, any_replica=True)
    assert (spans(asked), asked.last_stable_offset) == ([], 0)
    await leader.mark(marker(commit=False))
    await until(lambda: follower.replica().machine.high_watermark == 3)
    asked = await follower.fetch(0, read_committed=True, any_replica=True)
    assert (spans(asked), asked.last_stable_offset) == ([0, 1, 2], 3)
    assert [each.first_offset for each in asked.aborted] == [0]
