"""Clients in Python that send or read as fast as their brokers let them, and note when.

The programs in other languages are in ``tests.support.paced_programs``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest

RATE: Final = 100_000
"""The quota of each client, in bytes per second."""

VALUE: Final = bytes(10_000)
COUNT: Final = 400
"""Of values that a client sends or reads. It waits 38 s of the 40 s that they cost, so that it goes
on after the last window."""

WINDOW_S: Final = 30.0
TOLERANCE: Final = 0.1
BEGINNINGS_S: Final = (0.0, 5.0)
"""In the first window a client has what it may use at once, in the second it has not."""

REQUEST_BYTES: Final = 50_000
"""Batches and fetches are no larger, where a client has a setting for it."""

WAIT_S: Final = 150.0
"""A client that is not done after this time is given up."""


class Job(NamedTuple):
    """What a client is to do."""

    servers: str
    client_id: str
    topic: str
    values: int


class Arrival(NamedTuple):
    """A value was acknowledged to the producer, or reached the consumer."""

    at_s: float
    size: int


def librdkafka_produces(job: Job) -> list[Arrival]:
    from confluent_kafka import Producer

    arrivals: list[Arrival] = []
    failures: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)
        arrivals.append(Arrival(time.monotonic(), len(VALUE)))

    producer = Producer(_librdkafka(job, failures) | {"batch.size": REQUEST_BYTES})
    for _ in range(job.values):
        producer.produce(job.topic, VALUE, on_delivery=on_delivery)
    assert producer.flush(WAIT_S) == 0
    assert failures == []
    return arrivals


def librdkafka_consumes(job: Job) -> list[Arrival]:
    from confluent_kafka import Consumer, TopicPartition

    failures: list[Any] = []
    own = {"group.id": "unused", "fetch.message.max.bytes": REQUEST_BYTES}
    consumer = Consumer(_librdkafka(job, failures) | own)
    consumer.assign([TopicPartition(job.topic, 0, 0)])
    arrivals: list[Arrival] = []
    deadline = time.monotonic() + WAIT_S
    while len(arrivals) < job.values and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            arrivals.append(Arrival(time.monotonic(), len(message.value() or b"")))
    consumer.close()
    assert failures == []
    return arrivals


def _librdkafka(job: Job, failures: list[Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": job.servers,
        "client.id": job.client_id,
        "error_cb": failures.append,
    }


def kafka_python_produces(job: Job) -> list[Arrival]:
    from kafka import KafkaProducer

    arrivals: list[Arrival] = []
    failures: list[BaseException] = []

    def on_delivery(_: object) -> None:
        arrivals.append(Arrival(time.monotonic(), len(VALUE)))

    with KafkaProducer(
        bootstrap_servers=job.servers, client_id=job.client_id, batch_size=REQUEST_BYTES
    ) as producer:
        for _ in range(job.values):
            sent = producer.send(job.topic, VALUE)
            sent.add_callback(on_delivery)
            sent.add_errback(failures.append)
        producer.flush(WAIT_S)
    assert failures == []
    return arrivals


def kafka_python_consumes(job: Job) -> list[Arrival]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=job.servers,
        client_id=job.client_id,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=REQUEST_BYTES,
    )
    consumer.assign([TopicPartition(job.topic, 0)])
    arrivals: list[Arrival] = []
    deadline = time.monotonic() + WAIT_S
    while len(arrivals) < job.values and time.monotonic() < deadline:
        for records in consumer.poll(1000).values():
            now_s = time.monotonic()
            arrivals += [Arrival(now_s, len(each.value)) for each in records]
    consumer.close()
    return arrivals


async def _aiokafka_produces(job: Job) -> list[Arrival]:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=job.servers, client_id=job.client_id, max_batch_size=REQUEST_BYTES
    )
    await producer.start()
    try:
        return await _acknowledged(job, lambda: producer.send(job.topic, VALUE))
    finally:
        await producer.stop()


async def _aiokafka_consumes(job: Job) -> list[Arrival]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.servers,
        client_id=job.client_id,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=REQUEST_BYTES,
    )
    consumer.assign([TopicPartition(job.topic, 0)])
    await consumer.start()
    try:
        return await _received(job, lambda: consumer.getmany(timeout_ms=1000))
    finally:
        await consumer.stop()


async def _own_producer(job: Job) -> list[Arrival]:
    from stele.aio import Producer

    async with Producer(job.servers, client_id=job.client_id, batch_size=REQUEST_BYTES) as producer:
        return await _acknowledged(job, lambda: producer.send(job.topic, VALUE))


async def _own_consumer(job: Job) -> list[Arrival]:
    from stele.aio import Consumer

    async with Consumer(
        job.servers,
        client_id=job.client_id,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=REQUEST_BYTES,
    ) as consumer:
        consumer.assign([(job.topic, 0)])

        async def polled() -> Mapping[Any, list[Any]]:
            return {None: list(await consumer.poll())}

        return await _received(job, polled)


async def _acknowledged(
    job: Job, send: Callable[[], Awaitable[asyncio.Future[Any]]]
) -> list[Arrival]:
    async def arrival(sent: asyncio.Future[Any]) -> Arrival:
        await sent
        return Arrival(time.monotonic(), len(VALUE))

    async with asyncio.timeout(WAIT_S):
        arrivals = [asyncio.create_task(arrival(await send())) for _ in range(job.values)]
        return await asyncio.gather(*arrivals)


async def _received(
    job: Job, poll: Callable[[], Awaitable[Mapping[Any, list[Any]]]]
) -> list[Arrival]:
    arrivals: list[Arrival] = []
    async with asyncio.timeout(WAIT_S):
        while len(arrivals) < job.values:
            for records in (await poll()).values():
                now_s = time.monotonic()
                arrivals += [Arrival(now_s, len(each.value)) for each in records]
    return arrivals


def _run(work: Callable[[Job], Any]) -> Callable[[Job], list[Arrival]]:
    def run(job: Job) -> list[Arrival]:
        arrivals: list[Arrival] = asyncio.run(work(job))
        return arrivals

    return run


def assert_paced(arrivals: list[Arrival], beginnings_s: Sequence[float] = BEGINNINGS_S) -> None:
    """A client got all values, and within a tenth its quota in each window."""
    assert [each.size for each in arrivals] == [len(VALUE)] * COUNT
    shares = [_share(arrivals, each) for each in beginnings_s]
    print(f"parts of the quota: {shares}")
    assert shares == pytest.approx([1.0] * len(shares), abs=TOLERANCE)


def _share(arrivals: list[Arrival], from_s: float) -> float:
    """What a client got in a window, as a part of its quota."""
    began_s = arrivals[0].at_s + from_s
    got = sum(size for at_s, size in arrivals if began_s <= at_s < began_s + WINDOW_S)
    return got / (RATE * WINDOW_S)


Client = Callable[[Job], list[Arrival]]

PRODUCERS: Final[Mapping[str, Client]] = {
    "librdkafka": librdkafka_produces,
    "kafka-python": kafka_python_produces,
    "aiokafka": _run(_aiokafka_produces),
    "stele": _run(_own_producer),
}
CONSUMERS: Final[Mapping[str, Client]] = {
    "librdkafka": librdkafka_consumes,
    "kafka-python": kafka_python_consumes,
    "aiokafka": _run(_aiokafka_consumes),
    "stele": _run(_own_consumer),
}
