"""Transactions of unmodified Kafka clients with a cluster of real processes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
WITHIN_S = 60.0


def an_id() -> str:
    return f"id-{uuid.uuid4()}"


# ------------------------------------------------------------------------------ reading


def read(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    isolation: str = "read_committed",
    partitions: int = 2,
) -> list[bytes]:
    """All values up to the last stable offsets. There must be so many."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "by-hand",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    try:
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )
        found: list[bytes] = []
        ended: set[int] = set()
        while len(ended) < partitions or len(found) < count:
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"{len(found)} of {count} records came"
            if message.error() is None:
                found.append(message.value())
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                ended.add(message.partition())
        assert len(found) == count
        return found
    finally:
        consumer.close()


def values(prefix: str, count: int = 20) -> list[bytes]:
    return [f"{prefix}-{number:02}".encode() for number in range(count)]


# ------------------------------------------------------------------------------ confluent-kafka


def confluent_producer(bootstrap: str, transactional_id: str, **settings: Any) -> Any:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(WITHIN_S)
    return producer


def test_confluent_kafka_commits_and_aborts(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    producer = confluent_producer(bootstrap, an_id())
    for number in range(6):
        producer.begin_transaction()
        for value in values(f"transaction-{number}"):
            producer.produce(topic, value, partition=value[-1] % 2)
        if number % 2:
            producer.abort_transaction(WITHIN_S)
        else:
            producer.commit_transaction(WITHIN_S)
    wanted = [each for number in (0, 2, 4) for each in values(f"transaction-{number}")]
    found = read(bootstrap, topic, len(wanted))
    assert sorted(found) == wanted
    for parity in (0, 1):
        in_order = [each for each in wanted if each[-1] % 2 == parity]
        assert [each for each in found if each[-1] % 2 == parity] == in_order


def test_an_open_transaction_is_not_seen(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=1)
    producer = confluent_producer(bootstrap, an_id())
    producer.begin_transaction()
    for value in values("open"):
        producer.produce(topic, value)
    assert producer.flush(WITHIN_S) == 0
    uncommitted = read(bootstrap, topic, 20, isolation="read_uncommitted", partitions=1)
    assert uncommitted == values("open")
    assert read(bootstrap, topic, 0, partitions=1) == []
    producer.commit_transaction(WITHIN_S)
    assert read(bootstrap, topic, 20, partitions=1) == values("open")


def test_the_second_producer_of_an_id_fences_the_first(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    from confluent_kafka import KafkaException

    topic, transactional_id = create_topic(partitions=1), an_id()
    first = confluent_producer(bootstrap, transactional_id)
    first.begin_transaction()
    first.produce(topic, b"of the first")
    assert first.flush(WITHIN_S) == 0
    second = confluent_producer(bootstrap, transactional_id)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(WITHIN_S)
    assert caught.value.args[0].fatal(), caught.value
    second.begin_transaction()
    second.produce(topic, b"of the second")
    second.commit_transaction(WITHIN_S)
    assert read(bootstrap, topic, 1, partitions=1) == [b"of the second"]


def test_a_transaction_that_takes_too_long_is_aborted(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    from confluent_kafka import KafkaException

    topic = create_topic(partitions=1)
    producer = confluent_producer(
        bootstrap, an_id(), **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000}
    )
    producer.begin_transaction()
    producer.produce(topic, b"too late")
    assert producer.flush(WITHIN_S) == 0
    # What a later producer writes is seen, so the last stable offset has moved on.
    later = confluent_producer(bootstrap, an_id())
    later.begin_transaction()
    later.produce(topic, b"in time")
    later.commit_transaction(WITHIN_S)
    assert _read_until(bootstrap, topic, 1) == [b"in time"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(WITHIN_S)


def _read_until(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Values of partition 0 as they become stable."""
    with _consumer(bootstrap, topic, group=an_id()) as consumer:
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(WITHIN_S)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message.value())
        return found


@contextmanager
def _consumer(bootstrap: str, topic: str, *, group: str) -> Iterator[Any]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def test_consume_transform_produce(bootstrap: str, create_topic: CreateTopic) -> None:
    """Each input once in the output, and the offsets of the group move with the transactions."""
    source, target = create_topic(partitions=2), create_topic(partitions=2)
    _produce_plainly(bootstrap, source, values("input", 100))
    group, transactional_id = an_id(), an_id()
    done = 0
    for life in range(2):  # the second one goes on where the first has stopped
        producer = confluent_producer(bootstrap, transactional_id)
        with _consumer(bootstrap, source, group=group) as consumer:
            for turn in range(5):
                messages = _some(consumer, 10)
                producer.begin_transaction()
                for message in messages:
                    producer.produce(target, b"copied " + message.value())
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()),
                    consumer.consumer_group_metadata(),
                    WITHIN_S,
                )
                if life == 0 and turn == 4:
                    producer.abort_transaction(WITHIN_S)
                else:
                    producer.commit_transaction(WITHIN_S)
                    done += len(messages)
    with _consumer(bootstrap, source, group=group) as consumer:
        producer = confluent_producer(bootstrap, transactional_id)
        rest = _some(consumer, 100 - done)
        producer.begin_transaction()
        for message in rest:
            producer.produce(target, b"copied " + message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WITHIN_S
        )
        producer.commit_transaction(WITHIN_S)
    found = read(bootstrap, target, 100)
    assert sorted(found) == [b"copied " + each for each in values("input", 100)]


def _some(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=WITHIN_S)
        assert messages, f"only {len(found)} of {count} records came"
        assert all(each.error() is None for each in messages)
        found += messages
    return found


def _produce_plainly(bootstrap: str, topic: str, wanted: Iterable[bytes]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(wanted):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(WITHIN_S) == 0


# ------------------------------------------------------------------------------ kafka-python


def test_kafka_python_commits_and_aborts(bootstrap: str, create_topic: CreateTopic) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = create_topic(partitions=2)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=an_id(), acks="all")
    try:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for value in values(f"transaction-{number}"):
                producer.send(topic, value, partition=value[-1] % 2)
            if number % 2:
                producer.flush(WITHIN_S)
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close(timeout=5)
    wanted = [each for number in (0, 2) for each in values(f"transaction-{number}")]
    assert sorted(read(bootstrap, topic, 40)) == wanted

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=WITHIN_S * 1000,
    )
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(2)])
        found = [next(consumer).value for _ in wanted]
    finally:
        consumer.close()
    assert sorted(found) == wanted


# ------------------------------------------------------------------------------ aiokafka


async def test_aiokafka_commits_and_aborts(bootstrap: str, create_topic: CreateTopic) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    topic = create_topic(partitions=2)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=an_id())
    await producer.start()
    try:
        for number in range(4):
            await producer.begin_transaction()
            for value in values(f"transaction-{number}"):
                await producer.send(topic, value, partition=value[-1] % 2)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    finally:
        await producer.stop()
    wanted = [each for number in (0, 2) for each in values(f"transaction-{number}")]

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(2)])
        found = [(await consumer.getone()).value for _ in wanted]
    finally:
        await consumer.stop()
    assert sorted(found) == wanted


async def test_aiokafka_sends_offsets_in_a_transaction(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    topic, group = create_topic(partitions=2), an_id()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=an_id())
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    )
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await producer.start()
    await consumer.start()
    try:
        consumer.assign([first, second])
        async with producer.transaction():
            await producer.send(topic, b"with offsets", partition=0)
            await producer.send_offsets_to_transaction({first: 7}, group)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({first: 9, second: 3}, group)
        await producer.abort_transaction()
        assert await consumer.committed(first) == 7
        assert await consumer.committed(second) is None
    finally:
        await consumer.stop()
        await producer.stop()
