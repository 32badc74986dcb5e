"""When a producer gives a batch up, and how often it asks for the metadata meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.aio import Producer
from stele.errors import DeliveryTimeoutError, ErrorCode, TransactionAbortableError
from tests.support.stele import Fault, Stage, on_stage
from tests.support.stele_transactions import FakeTransactions, transactional, with_transactions

REFUSED = Fault(ErrorCode.NOT_ENOUGH_REPLICAS)


async def failed_after_s(producer: Producer, delivery: asyncio.Future[Any]) -> float:
    """How long after this call the delivery fails."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(DeliveryTimeoutError):
        await delivery
    return loop.time() - began_s


@on_stage
async def test_a_batch_that_was_sent_fails_at_its_delivery_timeout(stage: Stage) -> None:
    """Its next attempt would come much later."""
    partition = stage.cluster.create("t").partitions[0]
    options = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    producer = stage.producer(linger_ms=0, delivery_timeout_ms=2_350, **options)
    await (await producer.send("t", b"first"))
    partition.faults.append(REFUSED)
    delivery = await producer.send("t", b"v")
    assert await failed_after_s(producer, delivery) == pytest.approx(2.35, abs=0.02)
    await producer.abort()


@on_stage
async def test_a_batch_that_was_not_sent_fails_at_its_delivery_timeout(stage: Stage) -> None:
    """It lingers longer than it may take."""
    stage.cluster.create("t")
    producer = stage.producer(linger_ms=60_000, delivery_timeout_ms=2_350)
    await producer.partitions_for("t")
    delivery = await producer.send("t", b"v")
    assert await failed_after_s(producer, delivery) == pytest.approx(2.35, abs=0.02)
    await producer.abort()


@on_stage
async def test_only_batches_whose_time_is_over_fail(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(linger_ms=0, batch_size=1, delivery_timeout_ms=2_000) as producer:
        await (await producer.send("t", b"first"))
        partition.faults.extend([REFUSED] * 1_000)
        early = await producer.send("t", b"early")
        await asyncio.sleep(1)
        late = await producer.send("t", b"late")
        with pytest.raises(DeliveryTimeoutError):
            await early
        partition.faults.clear()
        await late
        with pytest.raises(DeliveryTimeoutError):
            await producer.flush()
    assert stage.cluster.values() == [b"first", b"late"]


@on_stage
async def test_a_slow_leader_is_no_reason_to_ask_for_metadata_all_the_time(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(linger_ms=0) as producer:
        await (await producer.send("t", b"first"))
        partition.faults.append(Fault(silent=True))
        asked = stage.cluster.metadata_requests
        await producer.send("t", b"v")
        for _ in range(900):  # each gives the sender a turn
            await asyncio.sleep(0.01)
            await producer.send("t", b"v")
        assert 5 <= stage.cluster.metadata_requests - asked <= 10


@on_stage
async def test_leaders_that_answer_are_no_reason_to_ask_for_metadata(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer(linger_ms=0) as producer:
        await (await producer.send("t", b"first"))
        asked = stage.cluster.metadata_requests
        for _ in range(50):
            await (await producer.send("t", b"v"))
            await asyncio.sleep(0.1)
        assert stage.cluster.metadata_requests == asked


@pytest.mark.parametrize(
    ("code", "applied"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
    ],
)
@on_stage
async def test_a_leader_that_lacks_replicas_is_no_reason_to_ask_for_metadata(
    stage: Stage, code: ErrorCode, applied: bool
) -> None:
    """It still leads."""
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(linger_ms=0) as producer:
        await (await producer.send("t", b"first"))
        asked = stage.cluster.metadata_requests
        partition.faults.extend([Fault(code, applied=applied)] * 5)
        await (await producer.send("t", b"v"))
        assert not partition.faults
        assert stage.cluster.metadata_requests == asked


@with_transactions
async def test_a_transaction_that_lost_a_topic_sends_nothing_more_to_others(
    stage: Stage, transactions: FakeTransactions
) -> None:
    """Both batches are ready in the turn that sees that the topic was made anew."""
    cluster = stage.cluster
    other = cluster.create("other").partitions[0]
    async with transactional(stage, linger_ms=10_000, metadata_max_age_ms=1_000) as producer:
        await producer.partitions_for("other")
        await producer.begin_transaction()
        await producer.send("t", b"gone", partition=0)
        await producer.flush()
        await producer.send("t", b"new", partition=0)
        lost = await producer.send("other", b"v", partition=0)
        cluster.topics["old"] = cluster.topics.pop("t")
        cluster.create("t", 2)
        await asyncio.sleep(3)  # the metadata have come
        with pytest.raises(TransactionAbortableError, match="made anew"):
            await producer.commit_transaction()
        with pytest.raises(TransactionAbortableError):
            await lost
        await producer.abort_transaction()
    assert other.produced == 0


@on_stage
async def test_an_attempt_cut_short_by_the_deadline_hides_no_reason(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    options = {"retry_backoff_ms": 500, "retry_backoff_max_ms": 500, "request_timeout_ms": 2_000}
    producer = stage.producer(linger_ms=0, delivery_timeout_ms=2_350, **options)
    await (await producer.send("t", b"first"))
    partition.faults.extend([REFUSED, Fault(silent=True)])
    delivery = await producer.send("t", b"v")
    with pytest.raises(DeliveryTimeoutError, match="NOT_ENOUGH_REPLICAS"):
        await delivery
    await producer.abort()


@on_stage
async def test_an_attempt_that_had_its_time_replaces_the_earlier_reason(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    options = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 100, "request_timeout_ms": 1_000}
    producer = stage.producer(linger_ms=0, delivery_timeout_ms=1_350, **options)
    await (await producer.send("t", b"first"))
    partition.faults.extend([REFUSED, *[Fault(silent=True)] * 5])
    delivery = await producer.send("t", b"v")
    with pytest.raises(DeliveryTimeoutError, match=r"did not answer within 1\.0 s"):
        await delivery
    await producer.abort()
