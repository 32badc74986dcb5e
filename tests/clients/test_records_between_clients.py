"""What one unmodified client writes, every other one reads: each compression, keys, headers, null
values and large records."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
LARGE_BYTES = 900_000


class Wanted(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


RECORDS = [
    Wanted(b"key", b"value", (("h", b"1"),)),
    Wanted(None, b"without a key"),
    Wanted(b"a tombstone", None),
    Wanted(b"", b""),
    Wanted(b"k", b"headers", (("twice", b"1"), ("twice", b"2"), ("empty", b""), ("ü", b"\xff\0"))),
    Wanted(b"\0\xff" * 500, b"\n" * 3000),
    Wanted(b"large", random.Random(1).randbytes(LARGE_BYTES // 2) + bytes(LARGE_BYTES // 2)),
    Wanted(b"last", b"after the large one"),
]
CODECS = ("none", "gzip", "lz4", "zstd")


def write_with_confluent(bootstrap: str, topic: str, partition: int, codec: str) -> None:
    from confluent_kafka import Producer

    errors: list[Any] = []
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec}
    producer = Producer(settings | {"enable.idempotence": True})
    for each in RECORDS:
        producer.produce(
            topic, each.value, each.key, partition, headers=list(each.headers),
            on_delivery=lambda error, _: errors.append(error),
        )  # fmt: skip
    assert producer.flush(60) == 0
    assert errors == [None] * len(RECORDS)


def write_with_kafka_python(bootstrap: str, topic: str, partition: int, codec: str) -> None:
    from kafka import KafkaProducer

    compression = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type=compression)
    try:
        futures = [
            producer.send(topic, each.value, each.key, list(each.headers), partition)
            for each in RECORDS
        ]
        producer.flush(60)
        assert [each.get(1).offset for each in futures] == list(range(len(RECORDS)))
    finally:
        producer.close()


async def write_with_aiokafka(bootstrap: str, topic: str, partition: int, codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
    )
    await producer.start()
    try:
        for each in RECORDS:
            await producer.send_and_wait(
                topic, each.value, each.key, partition, headers=list(each.headers)
            )
    finally:
        await producer.stop()


def read_with_confluent(bootstrap: str, topic: str, partitions: int) -> list[list[Wanted]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    found: list[list[Wanted]] = [[] for _ in range(partitions)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "by-hand"})
    try:
        consumer.assign(
            [TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)]
        )
        while sum(map(len, found)) < partitions * len(RECORDS):
            message: Any = consumer.poll(30)
            assert message is not None
            assert message.error() is None, message.error()
            headers = tuple(message.headers() or ())
            found[message.partition()].append(Wanted(message.key(), message.value(), headers))
    finally:
        consumer.close()
    return found


def read_with_kafka_python(bootstrap: str, topic: str, partitions: int) -> list[list[Wanted]]:
    from kafka import KafkaConsumer, TopicPartition

    found: list[list[Wanted]] = [[] for _ in range(partitions)]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=30_000)
    try:
        assigned = [TopicPartition(topic, each) for each in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        for record in consumer:
            wanted = Wanted(record.key, record.value, tuple(record.headers))
            found[record.partition].append(wanted)
            if sum(map(len, found)) == partitions * len(RECORDS):
                break
    finally:
        consumer.close()
    return found


async def read_with_aiokafka(bootstrap: str, topic: str, partitions: int) -> list[list[Wanted]]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    found: list[list[Wanted]] = [[] for _ in range(partitions)]
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, each) for each in range(partitions)])
        while sum(map(len, found)) < partitions * len(RECORDS):
            record = await consumer.getone()
            wanted = Wanted(record.key, record.value, tuple(record.headers))
            found[record.partition].append(wanted)
    finally:
        await consumer.stop()
    return found


async def test_every_client_reads_what_every_client_writes(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=3 * len(CODECS))
    for number, codec in enumerate(CODECS):
        write_with_confluent(bootstrap, topic, 3 * number, codec)
        write_with_kafka_python(bootstrap, topic, 3 * number + 1, codec)
        await write_with_aiokafka(bootstrap, topic, 3 * number + 2, codec)
    expected = [RECORDS] * (3 * len(CODECS))
    assert read_with_confluent(bootstrap, topic, len(expected)) == expected
    assert read_with_kafka_python(bootstrap, topic, len(expected)) == expected
    assert await read_with_aiokafka(bootstrap, topic, len(expected)) == expected


async def test_snappy_of_the_clients_that_have_it(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    """kafka-python needs another package for it."""
    topic = create_topic(partitions=2)
    write_with_confluent(bootstrap, topic, 0, "snappy")
    await write_with_aiokafka(bootstrap, topic, 1, "snappy")
    assert read_with_confluent(bootstrap, topic, 2) == [RECORDS] * 2
    assert await read_with_aiokafka(bootstrap, topic, 2) == [RECORDS] * 2
