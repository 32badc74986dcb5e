"""Unmodified clients on a topic that real brokers have compacted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest

from stele import Consumer, TopicView

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
KEYS = 20
COUNT = 3000
RECORDS = [(b"key-%d" % (number % KEYS), b"value %d" % number) for number in range(COUNT)]
DELETED = b"key-7"
EXPECTED = {key: value for key, value in RECORDS if key != DELETED}

Pairs = list[tuple[bytes | None, bytes | None]]


def last_values(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    values: dict[bytes | None, bytes] = {}
    for key, value in pairs:
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


async def produce(bootstrap: str, topic: str, compression: str | None) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        compression_type=compression,
        max_batch_size=1000,
    )
    await producer.start()
    try:
        for key, value in RECORDS:
            await producer.send(topic, value, key)
        await producer.send(topic, None, DELETED)
        await producer.flush()
    finally:
        await producer.stop()


async def read_by_aiokafka(bootstrap: str, topic: str) -> Pairs:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        found: Pairs = []
        while await consumer.position(partition) < end:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                found += [(each.key, each.value) for each in messages]
        return found
    finally:
        await consumer.stop()


def read_by_confluent(bootstrap: str, topic: str) -> Pairs:
    from confluent_kafka import Consumer as ConfluentConsumer
    from confluent_kafka import KafkaError, TopicPartition

    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "by-hand",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: Pairs = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(20)
            assert message is not None
            error = message.error()
            if error is None:
                found.append((message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                return found
            else:  # it asks for its group once, and passes the answer on
                assert error.code() == KafkaError.UNSUPPORTED_VERSION
    finally:
        consumer.close()


def read_by_stele(bootstrap: str, topic: str) -> Pairs:
    found: Pairs = []
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        (end,) = consumer.end_offsets([(topic, 0)]).values()
        while consumer.position(topic, 0) < end:
            found += [(each.key, each.value) for each in consumer.poll(timeout_ms=1000)]
    return found


@pytest.mark.parametrize("compression", [None, "gzip"])
async def test_every_client_finds_the_last_value_of_every_key(
    bootstrap: str, create_topic: CreateTopic, compression: str | None
) -> None:
    topic = create_topic(
        partitions=1,
        cleanup_policy="compact",
        segment_bytes="4096",
        min_cleanable_dirty_ratio="0.01",
    )
    await produce(bootstrap, topic, compression)
    found: Pairs = []
    deadline = time.monotonic() + 30
    # What is left tells how far the brokers are.
    while not found or len(found) > COUNT / 4:
        assert time.monotonic() < deadline, f"{len(found)} records are left"
        found = await read_by_aiokafka(bootstrap, topic)
        assert last_values(found) == EXPECTED
    assert set(found) <= {*RECORDS, (DELETED, None)}
    assert last_values(read_by_confluent(bootstrap, topic)) == EXPECTED
    assert last_values(read_by_stele(bootstrap, topic)) == EXPECTED
    with TopicView(bootstrap, topic) as view:
        assert dict(view) == EXPECTED
        view.put(DELETED, b"again")
        assert dict(view) == {**EXPECTED, DELETED: b"again"}
