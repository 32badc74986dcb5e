"""Clients of one simulated node whose consumers are members of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Consumer, Producer, ShareConsumer
from stele.config import ClientWorld
from stele.ids import TopicPartition
from stele.producer.prepared import PreparedTransactions
from stele.records import ConsumerRecord
from stele.redrive.redrive import Redrive, RedrivePlan
from tests.support.one_node import HOST, OneNode, on_a_node
from tests.support.worlds import Scenario, gives
from world.world import World

BOOTSTRAP = f"{HOST}:9092"
GROUP = "readers"
WITHIN_S = 120.0
"""Of virtual time."""


class Clients:
    """What a scenario gets. ``waits``: what clients said while they waited."""

    def __init__(self, machine: OneNode, world: World, protocol: str) -> None:
        self.machine = machine
        self._protocol = protocol
        self._options: dict[str, Any] = {
            "world": ClientWorld(world.clock, world.network, world.rng)
        }
        self.waits: list[str] = []

    def consumer(self, **options: Any) -> Consumer:
        defaults: dict[str, Any] = {
            "group_id": GROUP,
            "group_protocol": self._protocol,
            "auto_offset_reset": "earliest",
            "on_wait": self.waits.append,
            "session_timeout_ms": 10_000,
            "heartbeat_interval_ms": 1_000,
        }
        return Consumer(BOOTSTRAP, **{**self._options, **defaults, **options})

    def share_consumer(self, **options: Any) -> ShareConsumer:
        defaults = {"group_id": GROUP, "on_wait": self.waits.append}
        return ShareConsumer(BOOTSTRAP, **{**self._options, **defaults, **options})

    def producer(self, **options: Any) -> Producer:
        told = {"on_wait": self.waits.append}
        return Producer(BOOTSTRAP, **{**self._options, **told, **options})

    def prepared(self, **options: Any) -> PreparedTransactions:
        return PreparedTransactions(BOOTSTRAP, **{**self._options, **options})

    def redrive(self, plan: RedrivePlan, **options: Any) -> Redrive:
        return Redrive(plan, BOOTSTRAP, **{**self._options, **options})

    def admin(self) -> Admin:
        return Admin(BOOTSTRAP, **self._options)

    async def create(self, name: str = "t", partitions: int = 4, **configs: str) -> None:
        async with self.admin() as admin:
            await admin.create_topics([NewTopic(name, partitions, 1, configs)])

    async def grow(self, name: str, partitions: int) -> None:
        async with Admin(BOOTSTRAP, **self._options) as admin:
            await admin.create_partitions({name: partitions})

    async def fill(self, count: int, name: str = "t", partitions: int = 4, first: int = 0) -> None:
        async with Producer(BOOTSTRAP, **self._options) as producer:
            for number in range(first, first + count):
                await producer.send(name, b"%d" % number, partition=number % partitions)


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until so many records came."""
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += await consumer.poll(timeout_ms=500)
    return found


async def until(condition: Callable[[], bool], *polled: Consumer) -> list[ConsumerRecord]:
    """Poll these consumers in turn until the condition holds. Returns the records."""
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            for each in polled:
                found += await each.poll(timeout_ms=100)
            await asyncio.sleep(0.01)
    return found


def partitions(*numbers: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(each.value or b"") for each in records)


@gives("clients")
def with_clients(scenario: Scenario, /, protocol: str = "classic", **settings: Any) -> None:
    """Producers and consumers of groups beside a node."""

    async def whole(machine: OneNode, world: World) -> None:
        await scenario(Clients(machine, world, protocol))

    on_a_node.run(whole, **settings)
