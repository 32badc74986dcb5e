"""Offsets that a transaction commits, against a fake cluster on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stele.errors import ErrorCode, TransactionAbortableError
from stele.ids import TopicPartition
from stele.records import GroupMetadata, OffsetAndMetadata
from stele.wire.kafka.messages import txn_offset_commit
from tests.support.stele import Stage
from tests.support.stele_transactions import (
    FakeTransactions,
    TransactionFault,
    transactional,
    with_transactions,
)

GROUP = GroupMetadata("readers", 3, "member", None)
NAME = TopicPartition("in", 0)
LOST = TransactionFault(is_lost=True)
LOST_BUT_DONE = TransactionFault(applied=True, is_lost=True)


@with_transactions
async def test_offsets_are_committed_with_the_transaction(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage) as producer:
        async with producer.transaction():
            await producer.send("t", b"one", partition=0)
            await producer.send_group_offsets(GROUP, {NAME: OffsetAndMetadata(7)})
            assert transactions.committed_offsets == {}
        assert transactions.committed_offsets == {("readers", "in", 0): 7}
        await producer.begin_transaction()
        await producer.send_group_offsets(GROUP, {NAME: OffsetAndMetadata(9)})
        await producer.abort_transaction()
        assert transactions.committed_offsets == {("readers", "in", 0): 7}
        async with producer.transaction():  # only offsets
            await producer.send_group_offsets(GROUP, {NAME: OffsetAndMetadata(8)})
        assert transactions.committed_offsets == {("readers", "in", 0): 8}


@with_transactions
async def test_no_offsets_are_no_part_of_a_transaction(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage) as producer:
        await producer.init_transactions()
        transactions.asked.clear()
        async with producer.transaction():
            await producer.send_group_offsets(GROUP, {})
    assert not transactions.asked


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ErrorCode.ILLEGAL_GENERATION, "gone on without this member"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "was not taken"),
        (ErrorCode.TRANSACTION_ABORTABLE, "was not taken"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "was not taken"),
    ],
)
@with_transactions
async def test_refused_offsets_make_it_abortable(
    stage: Stage, transactions: FakeTransactions, error: ErrorCode, text: str
) -> None:
    transactions.group_errors.append(error)
    async with transactional(stage) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"one", partition=0)
        with pytest.raises(TransactionAbortableError, match=text):
            await producer.send_group_offsets(GROUP, {NAME: OffsetAndMetadata(7)})
        with pytest.raises(TransactionAbortableError, match=text):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_group_offsets(GROUP, {NAME: OffsetAndMetadata(7)})
    assert transactions.values() == []
    assert transactions.committed_offsets == {("readers", "in", 0): 7}


@with_transactions
async def test_offsets_are_sent_again_after_errors_that_pass(
    stage: Stage, transactions: FakeTransactions
) -> None:
    transactions.group_errors += [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ]
    transactions.fail("TxnOffsetCommit", LOST, LOST_BUT_DONE)
    async with transactional(stage) as producer, producer.transaction():
        await producer.send_group_offsets(GROUP, {NAME: OffsetAndMetadata(7)})
    assert transactions.committed_offsets == {("readers", "in", 0): 7}


@with_transactions
async def test_offsets_of_a_topic_that_was_deleted_are_refused_at_once(
    stage: Stage, transactions: FakeTransactions
) -> None:
    """The name may belong to another topic by now, whose records these offsets do not count."""
    read_id = stage.cluster.create("in").topic_id
    async with transactional(stage) as producer:
        await producer.partitions_for("in")
        await producer.begin_transaction()
        del stage.cluster.topics["in"]
        stage.cluster.create("other")
        stage.cluster.create("in")
        transactions.group_errors += [ErrorCode.UNKNOWN_TOPIC_ID] * 1000
        loop_time = stage.cluster.clock.monotonic
        began_s = loop_time()
        with pytest.raises(TransactionAbortableError, match="read from was deleted"):
            await producer.send_group_offsets(GROUP, {NAME: OffsetAndMetadata(7, topic_id=read_id)})
        assert loop_time() - began_s < 2, "max_block_ms is 5000"
        await producer.abort_transaction()
    assert transactions.committed_offsets == {}


@with_transactions
async def test_a_coordinator_that_does_not_know_the_topic_yet_is_asked_again(
    stage: Stage, transactions: FakeTransactions
) -> None:
    read_id = stage.cluster.create("in").topic_id
    offsets = {NAME: OffsetAndMetadata(7, topic_id=read_id)}
    transactions.group_errors += [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    async with transactional(stage) as producer:
        await producer.partitions_for("in")
        async with producer.transaction():
            await producer.send_group_offsets(GROUP, offsets)
    assert transactions.committed_offsets == {("readers", "in", 0): 7}


@with_transactions
async def test_only_a_refusal_of_the_topic_says_that_it_was_deleted(
    stage: Stage, transactions: FakeTransactions
) -> None:
    """Whether the coordinator takes the offset is not known while it loads."""
    stage.cluster.create("in")
    transactions.group_errors += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    offsets = {NAME: OffsetAndMetadata(7, topic_id=b"of an earlier one".ljust(16)[:16])}
    async with transactional(stage) as producer:
        await producer.partitions_for("in")
        async with producer.transaction():
            await producer.send_group_offsets(GROUP, offsets)
    assert transactions.committed_offsets == {("readers", "in", 0): 7}


def refusing(whole: str | None, part: str | None) -> Callable[[int, Any], Any]:
    def refuse(broker: int, request: txn_offset_commit.TxnOffsetCommitRequest) -> Any:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        parts = [
            txn_offset_commit.TxnOffsetCommitResponsePartition(0, code, error_message=part),
            txn_offset_commit.TxnOffsetCommitResponsePartition(1, code, error_message="not this"),
        ]
        topic = txn_offset_commit.TxnOffsetCommitResponseTopic("in", parts)
        return txn_offset_commit.TxnOffsetCommitResponse(topics=[topic], error_message=whole)

    return refuse


@pytest.mark.parametrize(
    ("whole", "part", "told"), [("ask Eve", "not this", "ask Eve"), (None, "ask Eve", "ask Eve")]
)
@with_transactions
async def test_refused_offsets_say_what_the_coordinator_says_first(
    stage: Stage, transactions: FakeTransactions, whole: str | None, part: str, told: str
) -> None:
    stage.cluster.answer(txn_offset_commit.API, refusing(whole, part))
    async with transactional(stage) as producer:
        await producer.begin_transaction()
        with pytest.raises(TransactionAbortableError) as refused:
            await producer.send_group_offsets(GROUP, {NAME: OffsetAndMetadata(7)})
        assert told in str(refused.value)
        assert "not this" not in str(refused.value)
        await producer.abort_transaction()
