"""A group of unmodified clients that change its protocol while they read (KIP-848)."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from typing import Any

import pytest

from stele import Admin, Consumer
from tests.clients.test_groups import (
    PARTITIONS,
    SESSION_MS,
    WITHIN_S,
    CreateTopic,
    confluent_member,
    consumer_protocol_member,
    fill,
    new_group,
    polling,
    polling_ours,
)

pytestmark = pytest.mark.processes


class Rolling:
    """Members that are replaced one by one. What they read they commit before one of them goes."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        self._with = (bootstrap, group, topic)
        self._strategy = strategy
        self.members: list[tuple[contextlib.ExitStack, Any]] = []
        self.found: Counter[bytes] = Counter()

    def start(self, *, is_classic: bool) -> None:
        stack = contextlib.ExitStack()
        settings = {"partition_assignment_strategy": self._strategy}
        member = (
            confluent_member(*self._with, **settings)
            if is_classic
            else consumer_protocol_member(*self._with)
        )
        self.members.append((stack, stack.enter_context(member)))

    def stop_oldest(self) -> None:
        stack, _ = self.members.pop(0)
        stack.close()

    def poll(self) -> None:
        for _, member in self.members:
            self.found.update(polling(member)())

    def settle(self) -> None:
        """Poll until the members share all partitions evenly."""
        share = PARTITIONS // len(self.members)
        deadline = time.monotonic() + WITHIN_S
        while [len(each.assignment()) for _, each in self.members] != [share] * len(self.members):
            assert time.monotonic() < deadline, [each.assignment() for _, each in self.members]
            self.poll()
        taken = {(each.topic, each.partition) for _, m in self.members for each in m.assignment()}
        assert len(taken) == PARTITIONS

    def read(self, values: list[bytes]) -> None:
        """Each record comes once in steady state."""
        before = Counter(self.found)
        deadline = time.monotonic() + WITHIN_S
        while not set(values) <= set(self.found):
            assert time.monotonic() < deadline, f"{len(self.found)} records"
            self.poll()
        assert self.found - before == Counter(values)
        for _, member in self.members:
            member.commit(asynchronous=False)


def type_of(bootstrap: str, group: str) -> str:
    with Admin(bootstrap) as admin:
        (found,) = [each for each in admin.list_groups() if each.group_id == group]
    return found.type


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_rolls_over_to_the_consumer_protocol_and_back(
    bootstrap: str, create_topic: CreateTopic, strategy: str
) -> None:
    topic, group = create_topic(partitions=PARTITIONS), new_group()
    rolling = Rolling(bootstrap, group, topic, strategy)
    numbers = itertools.count()

    def check(kind: str) -> None:
        rolling.settle()
        assert type_of(bootstrap, group) == kind
        rolling.read(fill(bootstrap, topic, 30, first=30 * next(numbers)))

    try:
        for _ in range(2):
            rolling.start(is_classic=True)
        check("classic")
        rolling.start(is_classic=False)
        check("consumer")  # two classic members and one of the consumer protocol
        rolling.stop_oldest()
        check("consumer")
        rolling.stop_oldest()
        rolling.start(is_classic=False)
        check("consumer")  # only the consumer protocol
        for _ in range(2):
            rolling.start(is_classic=True)
            rolling.stop_oldest()
            rolling.settle()
        check("classic")
    finally:
        while rolling.members:
            rolling.stop_oldest()


def test_classic_members_of_several_clients_beside_a_consumer(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    from kafka import KafkaConsumer

    topic, group = create_topic(partitions=PARTITIONS), new_group()
    settings: Any = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 500,
    }
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(Consumer(**settings))
        ours.subscribe([topic])
        kafka_python = KafkaConsumer(topic, **settings)
        stack.callback(kafka_python.close)
        new = stack.enter_context(consumer_protocol_member(bootstrap, group, topic))
        found: Counter[bytes] = Counter()

        def turn() -> None:
            found.update(polling_ours(ours)())
            found.update(polling(new)())
            for records in kafka_python.poll(timeout_ms=50).values():
                found.update(each.value for each in records)

        deadline = time.monotonic() + WITHIN_S
        while [len(each.assignment()) for each in (ours, kafka_python, new)] != [2, 2, 2]:
            assert time.monotonic() < deadline, "the partitions were not shared"
            turn()
        assert type_of(bootstrap, group) == "consumer"
        values = fill(bootstrap, topic, 60)
        while not set(values) <= set(found):
            assert time.monotonic() < deadline, f"{len(found)} of {len(values)} records"
            turn()
        assert found == Counter(values)
