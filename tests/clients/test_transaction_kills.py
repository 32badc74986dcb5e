"""Transactions while the broker dies that coordinates them and leads some of their partitions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from chaos.process_cluster import ProcessCluster
from metadata.internal_topics import TRANSACTION_TOPIC, coordinating_partition
from stele import Admin

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
PARTITIONS = 3
WITHIN_S = 60.0
ID = "a-dying-coordinator"


class Writing:
    """Writes the number of a transaction to every partition, one transaction after the other. Every
    third one is aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.committed: list[int] = []
        self.failures: list[Exception] = []
        self.end = threading.Event()
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": ID,
                "transaction.timeout.ms": 60_000,
            }
        )
        self._producer.init_transactions(WITHIN_S)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        try:
            while not self.end.is_set():
                self._transaction(number)
                number += 1
        except Exception as error:
            self.failures.append(error)

    def _transaction(self, number: int) -> None:
        """Raises KafkaException for an error that the producer does not survive."""
        from confluent_kafka import KafkaException

        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(self.topic, b"%d" % number, partition=partition)
        if number % 3 == 2:
            self._repeated(self._producer.abort_transaction)
            return
        try:
            self._repeated(self._producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._repeated(self._producer.abort_transaction)
        else:
            self.committed.append(number)

    @staticmethod
    def _repeated(call: Callable[[float], None]) -> None:
        """As librdkafka's documentation says what to do about a retriable error."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                call(WITHIN_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def stop(self) -> None:
        self.end.set()
        self._thread.join()


def read_committed(bootstrap: str, topic: str, partition: int) -> list[int]:
    """All values up to the end, once no transaction is open."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "by-hand",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    where = TopicPartition(topic, partition, OFFSET_BEGINNING)
    try:
        _, end = consumer.get_watermark_offsets(where, timeout=WITHIN_S)
        consumer.assign([where])
        found: list[int] = []
        deadline = time.monotonic() + WITHIN_S
        while consumer.position([where])[0].offset < end:
            assert time.monotonic() < deadline, f"{consumer.position([where])} of {end}"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(int(message.value()))
        return found
    finally:
        consumer.close()


def coordinator(admin: Admin) -> int:
    (topic,) = admin.describe_topics([TRANSACTION_TOPIC])
    leader = topic.partitions[coordinating_partition(ID, len(topic.partitions))].leader
    assert leader is not None
    return leader


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_what_is_committed_is_there_once_in_all_partitions(
    process_cluster: ProcessCluster, bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    writing = Writing(bootstrap, topic)
    killed: int | None = None

    def more(count: int) -> Callable[[], bool]:
        before = len(writing.committed)
        return lambda: bool(writing.failures) or len(writing.committed) >= before + count

    try:
        until(more(10), "transactions are committed")
        with Admin(bootstrap) as admin:
            killed = coordinator(admin)
        process_cluster.kill(killed)
        until(more(10), "transactions are committed without the broker")
        asyncio.run(process_cluster.restart(killed))
        killed = None
        until(more(10), "transactions are committed after its return")
    finally:
        writing.stop()
        if killed is not None:
            asyncio.run(process_cluster.restart(killed))
    assert writing.failures == []
    for partition in range(PARTITIONS):
        found = read_committed(bootstrap, topic, partition)
        assert found == sorted(found)
        assert Counter(found) == Counter(writing.committed)
