"""Transactions that are prepared and then ended, by the same process or another one."""

from __future__ import annotations

import pytest

from stele.aio import Producer
from stele.errors import (
    TransactionStateError,
)
from stele.producer.transaction_state import PreparedTransaction
from tests.support.stele import Stage
from tests.support.stele_transactions import (
    FakeTransactions,
    transactional,
    with_transactions,
)


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


def test_the_text_of_a_prepared_transaction() -> None:
    assert PreparedTransaction.parse(str(PreparedTransaction(4711, 3))) == (4711, 3)
    for text in ("", "4711", "a:b", ":"):
        with pytest.raises(ValueError, match=r"prepared|invalid literal"):
            PreparedTransaction.parse(text)
