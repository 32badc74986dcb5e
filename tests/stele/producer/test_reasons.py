"""``Producer.why``: what stands in the way, in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stele.errors import BufferFullError, DeliveryTimeoutError, ErrorCode
from stele.ids import TopicPartition
from stele.producer.producer import Producer
from stele.wire.kafka.messages import init_producer_id
from stele.wire.kafka.messages.produce import ProduceRequest
from tests.support.stele import FakePartition, Fault, Stage, on_stage
from tests.support.stele_kafka import ANSWERS

T0 = TopicPartition("t", 0)


async def line(producer: Producer, accept: Callable[[str], bool] = bool) -> str:
    """The reason for the partition, as soon as it is accepted."""
    said: list[str] = []
    for _ in range(2000):
        why = producer.why().get(T0, "")
        if accept(why):
            return why
        said.append(why)
        await asyncio.sleep(0.01)
    raise AssertionError(f"never said: {sorted(set(said))}")


def has(*texts: str) -> Callable[[str], bool]:
    return lambda why: all(text in why for text in texts)


@on_stage
async def test_nothing_waits_in_a_new_producer_and_after_a_delivery(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        assert producer.why() == {}
        await (await producer.send("t", b"v"))
        assert producer.why() == {}


@on_stage
async def test_says_that_a_batch_lingers_and_that_it_is_in_flight(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(linger_ms=1000) as producer:
        await (await producer.send("t", b"first"))
        await producer.send("t", b"v")
        await producer.send("t", b"v")
        assert producer.why() == {T0: "2 records: waits 1.0 s for more records (linger_ms)"}
        partition.faults.append(Fault(silent=True))
        why = await line(producer, has("sent to broker 1"))
        assert why.startswith("2 records: sent to broker 1 0.")
        assert why.endswith("ago, and not answered yet")
        await producer.abort()


@on_stage
async def test_says_after_which_error_it_tries_again(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer() as producer:
        await (await producer.send("t", b"first"))
        partition.faults.extend(Fault(ErrorCode.NOT_ENOUGH_REPLICAS) for _ in range(20))
        await producer.send("t", b"v")
        why = await line(producer, has("sent again in"))
        assert "broker 1 answers NOT_ENOUGH_REPLICAS" in why


@on_stage
async def test_says_that_there_is_no_leader(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer() as producer:
        await (await producer.send("t", b"first"))
        _leave_without_leader(stage, partition)
        await producer.send("t", b"v")
        await line(producer, has("its leader is not known"))
        await producer.abort()


def _leave_without_leader(stage: Stage, partition: FakePartition) -> None:
    stage.cluster.kill(partition.leader)
    stage.cluster.move_leader(partition, -1)
    stage.cluster.metadata_offset += 1


@on_stage
async def test_says_why_there_is_no_producer_id(stage: Stage) -> None:
    def refuse(broker: int, request: Any) -> init_producer_id.InitProducerIdResponse:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return init_producer_id.InitProducerIdResponse(error_code=code)

    stage.cluster.create("t")
    stage.cluster.answer(init_producer_id.API, refuse)
    async with stage.producer(linger_ms=0) as producer:
        await producer.partitions_for("t")
        await producer.send("t", b"v")
        assert producer.why() == {T0: "1 records: waits for a producer id"}
        why = await line(producer, has("COORDINATOR_LOAD_IN_PROGRESS"))
        assert why == "1 records: no producer id yet: COORDINATOR_LOAD_IN_PROGRESS"
        await producer.abort()


@on_stage
async def test_says_that_a_broker_has_too_many_requests_to_answer(stage: Stage) -> None:
    topic = stage.cluster.create("t", 2)
    for partition in topic.partitions.values():
        partition.leader = 1
    async with stage.producer(linger_ms=0, max_in_flight=1) as producer:
        await (await producer.send("t", b"first", partition=0))
        topic.partitions[1].faults.append(Fault(silent=True))
        await producer.send("t", b"v", partition=1)
        await asyncio.sleep(0.1)
        await producer.send("t", b"v", partition=0)
        why = await line(producer, has("broker 1 gets no requests for"))
        assert "leaves max_in_flight requests unanswered" in why
        await producer.abort()


@on_stage
async def test_says_that_the_client_is_above_a_quota(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.cluster.create("t")
    answer = ANSWERS[ProduceRequest]

    async def throttled(*asked: Any) -> Any:
        told = await answer(*asked)
        told.throttle_time_ms = 3000
        return told

    monkeypatch.setitem(ANSWERS, ProduceRequest, throttled)
    async with stage.producer(linger_ms=0) as producer:
        assert producer.throttled_s == 0
        await (await producer.send("t", b"first"))
        assert producer.throttled_s == pytest.approx(3, abs=0.1)
        await producer.send("t", b"v")
        assert "reads nothing from this client for" in await line(producer)
        assert "above its quota" in producer.why()[T0]


@on_stage
async def test_says_that_the_buffer_is_full_and_which_topic_is_unknown(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    producer = stage.producer(
        batch_size=1000, buffer_memory=1000, max_request_size=1000, max_block_ms=2000
    )
    await (await producer.send("t", b"first"))
    partition.faults.extend(Fault(silent=True) for _ in range(20))
    await producer.send("t", bytes(800))
    blocked = asyncio.create_task(producer.send("t", bytes(800)))
    unknown = asyncio.create_task(producer.send("u", b"v"))
    await asyncio.sleep(0.5)
    why = producer.why()
    assert "the buffer is full (" in why[T0]
    assert "of buffer_memory=1000 bytes), and sends wait" in why[T0]
    assert why[TopicPartition("u", -1)] == (
        "the topic is not known yet (UNKNOWN_TOPIC_OR_PARTITION)"
    )
    with pytest.raises(BufferFullError, match="sent to broker 1"):
        await blocked
    unknown.cancel()
    await asyncio.gather(unknown, return_exceptions=True)
    await producer.abort()


@on_stage
async def test_a_delivery_timeout_says_it_of_records_that_were_never_sent(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(delivery_timeout_ms=3000) as producer:
        await (await producer.send("t", b"first"))
        _leave_without_leader(stage, partition)
        future = await producer.send("t", b"v")
        said = "it was not written. Now: 1 records: its leader is not known"
        with pytest.raises(DeliveryTimeoutError, match=said):
            await future
        await producer.abort()


@on_stage
async def test_a_delivery_timeout_says_the_same(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(delivery_timeout_ms=3000) as producer:
        await (await producer.send("t", b"first"))
        partition.faults.extend(Fault(ErrorCode.NOT_ENOUGH_REPLICAS) for _ in range(200))
        future = await producer.send("t", b"v")
        with pytest.raises(DeliveryTimeoutError, match="answers NOT_ENOUGH_REPLICAS"):
            await future
        with pytest.raises(DeliveryTimeoutError):
            await producer.flush()
