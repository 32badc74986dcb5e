"""Unmodified Kafka clients with a cluster of real processes. Partitions are assigned by hand."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.processes

RECORDS = [(f"key-{number % 7}".encode(), f"value {number}".encode()) for number in range(500)]
CreateTopic = Callable[..., str]


def run_kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
def test_kcat_produces_and_consumes(
    bootstrap: str, create_topic: CreateTopic, compression: str
) -> None:
    topic = create_topic(partitions=1)
    lines = b"".join(b"%b:%b\n" % record for record in RECORDS)
    target = ["-t", topic, "-p", "0"]
    run_kcat(bootstrap, "-P", "-K:", "-z", compression, "-X", "acks=all", *target, stdin=lines)
    read = run_kcat(
        bootstrap, "-C", "-o", "beginning", "-e", "-q", "-f", "%o:%k:%s\n", *target
    ).splitlines()
    assert read == [b"%d:%b:%b" % (n, *record) for n, record in enumerate(RECORDS)]
    tail = run_kcat(bootstrap, "-C", "-o", "-10", "-e", "-q", "-f", "%o\n", *target).split()
    assert tail == [b"%d" % offset for offset in range(490, 500)]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_lists_brokers_and_topics(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=3)
    deadline = time.monotonic() + 20
    listing = ""
    # A broker lists a new topic once it has heard of it.
    while f'topic "{topic}" with 3 partitions' not in listing:
        assert time.monotonic() < deadline
        listing = run_kcat(bootstrap, "-L").decode()
    assert "3 brokers" in listing


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_kafka_produces_and_consumes(
    bootstrap: str, create_topic: CreateTopic, compression: str
) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    topic = create_topic(partitions=3)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": compression,
        }
    )
    failures: list[object] = []
    delivered: list[tuple[int, int]] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)
        else:
            delivered.append((message.partition(), message.offset()))  # type: ignore[attr-defined]

    for key, value in RECORDS:
        producer.produce(topic, value, key, headers={"n": b"1"}, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert failures == []
    assert len(set(delivered)) == len(RECORDS)

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "by-hand", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(3)])
        read: list[tuple[bytes | None, bytes | None]] = []
        while len(read) < len(RECORDS):
            # It waits until as many have come.
            messages = consumer.consume(len(RECORDS) - len(read), timeout=30)
            assert messages, f"only {len(read)} of {len(RECORDS)} records came"
            for message in messages:
                assert message.error() is None, message.error()
                assert message.headers() == [("n", b"1")]
                read.append((message.key(), message.value()))
    finally:
        consumer.close()
    assert sorted(read) == sorted(RECORDS)
    for wanted in {key for key, _ in RECORDS}:
        assert [v for k, v in read if k == wanted] == [v for k, v in RECORDS if k == wanted]


@pytest.mark.parametrize("compression", [None, "gzip", "lz4", "zstd"])
def test_kafka_python_produces_and_consumes(
    bootstrap: str, create_topic: CreateTopic, compression: str | None
) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = create_topic(partitions=2)
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type=compression)
    try:
        futures = [producer.send(topic, key=key, value=value) for key, value in RECORDS]
        producer.flush(30)
        placed = {(f.get(30).partition, f.get(30).offset) for f in futures}
    finally:
        producer.close()
    assert len(placed) == len(RECORDS)

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    try:
        partitions = [TopicPartition(topic, number) for number in range(2)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        read = []
        for message in consumer:
            read.append((message.key, message.value))
            if len(read) == len(RECORDS):
                break
        assert sorted(read) == sorted(RECORDS)
        assert sum(consumer.end_offsets(partitions).values()) == len(RECORDS)
        assert set(consumer.beginning_offsets(partitions).values()) == {0}
    finally:
        consumer.close()


async def test_aiokafka_produces_and_consumes(bootstrap: str, create_topic: CreateTopic) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    topic = create_topic(partitions=1)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        for key, value in RECORDS:
            await producer.send(topic, value, key)
        await producer.flush()
    finally:
        await producer.stop()

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        read = [await consumer.getone() for _ in RECORDS]
    finally:
        await consumer.stop()
    assert [(message.key, message.value) for message in read] == RECORDS
    assert [message.offset for message in read] == list(range(len(RECORDS)))
