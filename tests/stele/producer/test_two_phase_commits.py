"""Transactions that are prepared and then ended, by the same process or another one."""

from __future__ import annotations

import pytest

from stele.aio import Producer
from stele.errors import (
    TransactionOutcomeUnknownError,
    TransactionStateError,
    UnreachableError,
)
from stele.producer.transaction_state import PreparedTransaction
from tests.support.stele import Stage
from tests.support.stele_transactions import (
    FakeTransactions,
    TransactionFault,
    transactional,
    with_transactions,
)

LOST = TransactionFault(is_lost=True)
LOST_BUT_DONE = TransactionFault(applied=True, is_lost=True)


def two_phase(stage: Stage) -> Producer:
    return transactional(stage, transaction_two_phase_commit_enable=True)


async def prepared(stage: Stage, value: bytes) -> str:
    """Of a process that prepares a transaction and dies."""
    producer = two_phase(stage)
    await producer.begin_transaction()
    await producer.send("t", value, partition=0)
    text = str(await producer.prepare_transaction())
    with pytest.raises(TransactionStateError, match="prepared"):
        await producer.send("t", b"too late")
    await producer.abort()
    return text


@with_transactions
async def test_another_process_commits_what_was_prepared(
    stage: Stage, transactions: FakeTransactions
) -> None:
    text = await prepared(stage, b"one")
    async with two_phase(stage) as producer:
        assert await producer.complete_transaction(PreparedTransaction.parse(text))
        assert transactions.values() == [b"one"]
        async with producer.transaction():
            await producer.send("t", b"two", partition=0)
    async with two_phase(stage) as producer:  # an outside coordinator repeats itself
        assert not await producer.complete_transaction(PreparedTransaction.parse(text))
    assert transactions.values() == [b"one", b"two"]


@with_transactions
async def test_another_process_aborts_what_was_prepared(
    stage: Stage, transactions: FakeTransactions
) -> None:
    await prepared(stage, b"one")
    async with two_phase(stage) as producer:
        assert await producer.abort_prepared()
        assert not await producer.abort_prepared()
    await prepared(stage, b"two")
    async with two_phase(stage) as producer:  # what was decided to commit is another one
        assert await producer.complete_transaction(PreparedTransaction(1, 2))
    await prepared(stage, b"three")
    async with two_phase(stage) as producer:  # begins without asking for it
        await producer.begin_transaction()
    assert transactions.values() == []


@with_transactions
async def test_who_prepared_it_can_commit_it(stage: Stage, transactions: FakeTransactions) -> None:
    async with two_phase(stage) as producer:
        for value in (b"one", b"two"):
            await producer.begin_transaction()
            await producer.send("t", value, partition=0)
            name = await producer.prepare_transaction()
            assert await producer.complete_transaction(name)
        await producer.begin_transaction()
        await producer.send("t", b"three", partition=0)
        await producer.prepare_transaction()
        await producer.commit_transaction()
    assert transactions.values() == [b"one", b"two", b"three"]


@with_transactions
async def test_closing_leaves_a_prepared_transaction_alone(
    stage: Stage, transactions: FakeTransactions
) -> None:
    producer = two_phase(stage)
    await producer.begin_transaction()
    await producer.send("t", b"one", partition=0)
    name = await producer.prepare_transaction()
    await producer.close()
    async with two_phase(stage) as other:
        await other.complete_transaction(name)
    assert transactions.values() == [b"one"]


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("fault", [LOST, LOST_BUT_DONE])
@with_transactions
async def test_an_end_without_an_answer_is_asked_for_again(
    stage: Stage, transactions: FakeTransactions, fault: TransactionFault, *, is_commit: bool
) -> None:
    """By the same call. An outside coordinator repeats its decision until it is heard."""
    name = PreparedTransaction.parse(await prepared(stage, b"one"))
    transactions.fail("EndTxn", fault, *[LOST] * 100)
    async with transactional(
        stage, transaction_two_phase_commit_enable=True, max_block_ms=500
    ) as producer:

        async def end() -> bool:
            if is_commit:
                return await producer.complete_transaction(name)
            return await producer.abort_prepared()

        with pytest.raises((TransactionOutcomeUnknownError, UnreachableError)):
            await end()
        transactions.faults.clear()
        with pytest.raises(TransactionStateError, match="nothing to"):  # the other decision
            await (producer.abort_prepared() if is_commit else producer.complete_transaction(name))
        assert await end()
        assert not await end()
    assert transactions.values() == ([b"one"] if is_commit else [])


@with_transactions
async def test_a_transaction_that_is_not_prepared_is_not_completed(
    stage: Stage, transactions: FakeTransactions
) -> None:
    """Its records may be under way, so it is neither committed nor aborted by mistake."""
    async with two_phase(stage) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"one", partition=0)
        await producer.flush()
        await producer.send("t", b"two", partition=0)
        identity = transactions.ids["tx"]
        name = PreparedTransaction(identity.producer_id, identity.producer_epoch)
        with pytest.raises(TransactionStateError, match="prepared"):
            await producer.complete_transaction(name)
        with pytest.raises(TransactionStateError, match="prepared"):
            await producer.abort_prepared()
        await producer.send("t", b"three", partition=0)
        assert await producer.prepare_transaction() == name
        assert await producer.complete_transaction(name)
    assert transactions.values() == [b"one", b"two", b"three"]


def test_the_text_of_a_prepared_transaction() -> None:
    assert PreparedTransaction.parse(str(PreparedTransaction(4711, 3))) == (4711, 3)
    for text in ("", "4711", "a:b", ":"):
        with pytest.raises(ValueError, match=r"prepared|invalid literal"):
            PreparedTransaction.parse(text)
