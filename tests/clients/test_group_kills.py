"""A group of two clients while the broker dies that coordinates it and leads some of its
partitions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from chaos.process_cluster import ProcessCluster
from metadata.internal_topics import GROUP_TOPIC, coordinating_partition
from stele import Admin

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
PARTITIONS = 6
WITHIN_S = 60.0
GROUP = "readers-of-a-dying-broker"
Place = tuple[int, int]
"""Partition and offset."""


class Reading:
    """What one member has read, and which of its commits were acknowledged."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.committed: dict[int, int] = {}
        self.repeated: list[Place] = []

    def read(self, partition: int, offset: int, value: bytes) -> None:
        if offset < self.committed.get(partition, 0):
            self.repeated.append((partition, offset))
        self.values.append(value)

    def commit(self, partition: int, offset: int) -> None:
        self.committed[partition] = max(offset, self.committed.get(partition, 0))


def read_with_confluent(bootstrap: str, topic: str, reading: Reading, end: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe([topic])
    try:
        while not end.is_set():
            message: Any = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            reading.read(message.partition(), message.offset(), message.value())
            try:
                for each in consumer.commit(message=message, asynchronous=False):
                    if each.error is None:
                        reading.commit(each.partition, each.offset)
            except KafkaException:
                pass  # it may be read again
    finally:
        consumer.close()


def read_with_aiokafka(bootstrap: str, topic: str, reading: Reading, end: threading.Event) -> None:
    asyncio.run(_read_with_aiokafka(bootstrap, topic, reading, end))


async def _read_with_aiokafka(
    bootstrap: str, topic: str, reading: Reading, end: threading.Event
) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    await consumer.start()
    try:
        while not end.is_set():
            for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                for record in records:
                    reading.read(record.partition, record.offset, record.value)
                offset = records[-1].offset + 1
                try:
                    await consumer.commit({partition: offset})
                    reading.commit(partition.partition, offset)
                except KafkaError:
                    pass  # it may be read again
    finally:
        await consumer.stop()


def coordinator(admin: Admin) -> int:
    (topic,) = admin.describe_topics([GROUP_TOPIC])
    leader = topic.partitions[coordinating_partition(GROUP, len(topic.partitions))].leader
    assert leader is not None
    return leader


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_nothing_is_lost_and_nothing_committed_is_read_again(
    process_cluster: ProcessCluster, bootstrap: str, create_topic: CreateTopic
) -> None:
    from confluent_kafka import Producer

    topic = create_topic(partitions=PARTITIONS)
    readings, end = [Reading(), Reading()], threading.Event()
    threads = [
        threading.Thread(target=read, args=(bootstrap, topic, reading, end))
        for read, reading in zip((read_with_confluent, read_with_aiokafka), readings, strict=True)
    ]
    acknowledged: list[bytes] = []
    refused: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())
        else:
            refused.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def write(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.produce(
                topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered
            )
        producer.poll(0)

    def everything_is_read() -> bool:
        producer.poll(0)
        return {*acknowledged} <= {value for each in readings for value in each.values}

    for thread in threads:
        thread.start()
    killed: int | None = None
    try:
        write(0, 60)
        until(lambda: all(each.values for each in readings), "both members read")
        with Admin(bootstrap) as admin:
            killed = coordinator(admin)
            (described,) = admin.describe_topics([topic])
            assert killed in {each.leader for each in described.partitions}
        process_cluster.kill(killed)
        write(60, 60)
        assert producer.flush(WITHIN_S) == 0
        until(everything_is_read, "what was written while the broker was away is read")
        asyncio.run(process_cluster.restart(killed))
        killed = None
        write(120, 60)
        assert producer.flush(WITHIN_S) == 0
        until(everything_is_read, "what was written after its return is read")
    finally:
        end.set()
        for thread in threads:
            thread.join()
        if killed is not None:
            asyncio.run(process_cluster.restart(killed))
    assert refused == []
    assert len({*acknowledged}) == 180
    assert [each.repeated for each in readings] == [[], []]
    for partition in range(PARTITIONS):
        assert max(each.committed.get(partition, 0) for each in readings) <= 30
