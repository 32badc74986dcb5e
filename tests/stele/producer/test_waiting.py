"""Records and flushes that wait: whose turn it is, and what wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stele.aio import Producer
from stele.config import ProducerConfig
from stele.errors import (
    ApiError,
    BufferFullError,
    ErrorCode,
    TransactionAbortedError,
    TransactionStateError,
)
from stele.producer.accumulator import Accumulator
from stele.wire.batch import HEADER_SIZE, BatchBuilder
from stele.wire.record import EncodedRecords
from tests.support.stele import Fault, Stage, on_stage
from tests.support.stele_transactions import FakeTransactions, transactional, with_transactions

SIZE = 4096
SMALL: dict[str, Any] = {"buffer_memory": SIZE, "batch_size": SIZE, "max_request_size": SIZE}


async def send(producer: Producer, value: bytes) -> None:
    await producer.send("t", value, partition=0)


async def send_encoded(producer: Producer, value: bytes) -> None:
    builder = BatchBuilder()
    builder.append(None, value, timestamp_ms=7)
    await producer.send_encoded(
        "t", EncodedRecords(bytes(builder.build())[HEADER_SIZE:], 1, 7), partition=0
    )


SENDS = pytest.mark.parametrize("send", [send, send_encoded])
Send = Callable[[Producer, bytes], Awaitable[None]]


# --------------------------------------------------------------------------------- room


@on_stage
async def test_a_record_that_waits_for_room_is_served_before_later_ones(stage: Stage) -> None:
    """Small records that pass it could keep a large one waiting for ever."""
    stage.cluster.create("t")
    async with stage.producer(**SMALL) as producer:
        await producer.partitions_for("t")
        stage.cluster.stream_answers_take_s = 0.5
        await send(producer, bytes(2500))
        large = asyncio.ensure_future(send(producer, bytes(2500)))
        await asyncio.sleep(0.01)
        small = asyncio.ensure_future(send(producer, b"small"))
        with pytest.raises(BufferFullError):
            producer.send_nowait("t", b"at once")
        await small
        assert large.done()
    assert stage.cluster.values() == [bytes(2500), bytes(2500), b"small"]


@on_stage
async def test_a_record_that_gives_up_waiting_leaves_the_room_to_the_next(stage: Stage) -> None:
    """Nothing else is acknowledged that would wake it."""
    accumulator = Accumulator(ProducerConfig(**SMALL))
    assert accumulator.hand_over(2000, has_waited=False)
    large = asyncio.ensure_future(accumulator.wait_for_room(3000))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(accumulator.wait_for_room(100))
    await asyncio.sleep(0)
    large.cancel()
    async with asyncio.timeout(1):
        await small


@on_stage
async def test_a_record_that_finds_too_little_room_keeps_its_place(stage: Stage) -> None:
    accumulator = Accumulator(ProducerConfig(**SMALL))
    assert accumulator.hand_over(1000, has_waited=False)
    assert accumulator.hand_over(2000, has_waited=False)
    large = asyncio.ensure_future(accumulator.wait_for_room(3000))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(accumulator.wait_for_room(2000))
    await asyncio.sleep(0)
    for size, are_done in (1000, (False, False)), (2000, (True, False)):
        accumulator.take_over(size)
        accumulator.wake_for_room()
        await asyncio.sleep(0)
        assert (large.done(), small.done()) == are_done
    small.cancel()
    await asyncio.gather(small, return_exceptions=True)


@SENDS
@on_stage
async def test_nothing_lingers_while_a_record_waits_for_room(stage: Stage, send: Send) -> None:
    stage.cluster.create("t")
    async with stage.producer(linger_ms=60_000, max_block_ms=5_000, **SMALL) as producer:
        await producer.send("t", bytes(2500))
        await send(producer, bytes(2500))
    assert stage.cluster.values() == [bytes(2500)] * 2


@SENDS
@with_transactions
async def test_a_record_that_waits_for_room_is_not_taken_after_its_transaction(
    stage: Stage, transactions: FakeTransactions, send: Send
) -> None:
    async with transactional(stage, **SMALL) as producer:
        await producer.begin_transaction()
        stage.cluster.partition().faults.append(Fault(silent=True))
        await producer.send("t", bytes(2500), partition=0)
        waiting = asyncio.ensure_future(send(producer, bytes(2500)))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await producer.abort_transaction()
        with pytest.raises(TransactionStateError):
            await waiting
        async with producer.transaction():
            await producer.send("t", b"small", partition=0)
    assert transactions.values() == [b"small"]


@SENDS
@with_transactions
async def test_a_record_that_waits_for_room_is_not_taken_by_the_next_transaction(
    stage: Stage, transactions: FakeTransactions, send: Send
) -> None:
    """Nothing was sent, so the next transaction has begun before the record can learn of it."""
    async with transactional(stage, **SMALL) as producer:
        await producer.init_transactions()
        await producer.partitions_for("t")
        await producer.begin_transaction()
        await producer.send("t", bytes(2500), partition=0)
        waiting = asyncio.ensure_future(send(producer, bytes(2500)))
        await asyncio.sleep(0)
        assert not waiting.done()
        await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(TransactionAbortedError, match="waited for room"):
            await waiting
        await producer.send("t", b"small", partition=0)
        await producer.commit_transaction()
    assert transactions.values() == [b"small"]


@pytest.mark.parametrize("smaller", ["buffer_memory", "max_request_size"])
@on_stage
async def test_a_record_that_the_buffer_or_no_request_can_hold_is_refused(
    stage: Stage, smaller: str
) -> None:
    stage.cluster.create("t")
    options: dict[str, Any] = {"buffer_memory": 9000, "max_request_size": 9000, smaller: 5000}
    async with stage.producer(batch_size=1000, max_block_ms=1000, **options) as producer:
        await producer.send("t", bytes(4900))
        with pytest.raises(ApiError) as refused:
            await producer.send("t", bytes(5001))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


# ------------------------------------------------------------------------------- flushes


@on_stage
async def test_a_flush_does_not_wait_for_later_records(stage: Stage) -> None:
    stage.cluster.create("t", 2)
    async with stage.producer(linger_ms=60_000) as producer:
        await producer.send("t", b"before", partition=0)
        flush = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        later = await producer.send("t", b"later", partition=1)
        async with asyncio.timeout(1):
            await flush
        assert stage.cluster.values() == [b"before"]
        assert not later.done()


@on_stage
async def test_a_flush_that_is_cancelled_hinders_no_other(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer(linger_ms=0) as producer:
        await producer.partitions_for("t")
        stage.cluster.stream_answers_take_s = 1.0
        await producer.send("t", b"v")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await producer.flush()
        await producer.flush()
        assert stage.cluster.values() == [b"v"]
        assert not producer.has_failed
