"""The synchronous share consumer, in real time with brokers in memory."""

from __future__ import annotations

import random
import threading

import pytest

import stele
from stele.config import ClientWorld
from stele.errors import ClosedError, WakeupError
from stele.ids import TopicPartition
from stele.real import RealClock
from stele.records import AcknowledgeType
from tests.support.share_twin import ACCEPT, REJECT, ShareTwin, append
from tests.support.stele import FakeCluster

VALUES = [b"a", b"b", b"c"]


class InMemory:
    """A topic with three records."""

    def __init__(self) -> None:
        clock = RealClock()
        self.cluster = FakeCluster(clock)
        self.cluster.stream_answers_take_s = 0.0
        self.world = ClientWorld(clock, self.cluster, random.Random(1))
        self.twin = ShareTwin(self.cluster)
        append(self.cluster.create("t").partitions[0], *VALUES)

    def consumer(self, mode: str = "explicit") -> stele.ShareConsumer:
        consumer = stele.ShareConsumer(
            self.cluster.bootstrap_servers,
            world=self.world,
            group_id="g",
            share_acknowledgement_mode=mode,  # type: ignore[arg-type]
            on_wait=lambda _: None,
        )
        consumer.subscribe(["t"])
        return consumer


def test_records_are_accepted_released_and_rejected() -> None:
    stage = InMemory()
    with stage.consumer() as consumer:
        first, second, third = consumer.poll(timeout_ms=30_000)
        assert consumer.holds(first)
        with consumer.processing(first):
            pass
        with pytest.raises(ValueError, match="no"), consumer.processing(second):
            raise ValueError("no")
        consumer.acknowledge(third, AcknowledgeType.REJECT)
        assert consumer.commit() == {TopicPartition("t", 0): None}
        (again,) = consumer.poll(timeout_ms=30_000)
        assert (again.value, again.delivery_count) == (b"b", 2)
        assert consumer.assignment() == [TopicPartition("t", 0)]
    assert stage.twin.outcomes() == {0: ACCEPT, 2: REJECT}
    with pytest.raises(ClosedError):
        consumer.poll()


def test_an_iteration_accepts_the_record_before() -> None:
    stage = InMemory()
    with stage.consumer("implicit") as consumer:
        found = [next(consumer).value for _ in VALUES]
        consumer.commit()
    assert found == VALUES
    assert stage.twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


def test_records_of_an_interrupted_poll_are_returned_again() -> None:
    stage = InMemory()
    with stage.consumer() as consumer:
        records = consumer.poll(timeout_ms=30_000)
        consumer.put_back(records[1:])
        assert consumer.poll(timeout_ms=30_000) == records[1:]


def test_other_threads_acknowledge_wake_and_close() -> None:
    stage = InMemory()
    consumer = stage.consumer()
    records = consumer.poll(timeout_ms=30_000)

    def work() -> None:
        for record in records:
            with consumer.processing(record):
                pass
        consumer.commit()
        consumer.wakeup()

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(WakeupError):
        consumer.poll(timeout_ms=30_000)
    thread.join()
    assert stage.twin.outcomes() == dict.fromkeys(range(3), ACCEPT)
    closer = threading.Timer(0.1, consumer.close)
    closer.start()
    with pytest.raises(ClosedError):
        consumer.poll(timeout_ms=30_000)
    closer.join()
