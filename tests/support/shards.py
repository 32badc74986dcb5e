"""A shard on a log of the test."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.coordinator.shard import Shard
from broker.coordinator.step import KeyValue, Now, Reply, Step
from broker.replication.deadlines import DeadlineWheel
from stele.wire.batch import Record
from tests.support.coordinators import Event, Heard, HeldLog, Sums
from tests.support.timing import LoopClock

TIMEOUT_MS = 5000


class ShardBench:
    """A shard on a log of the test."""

    def __init__(self, log: HeldLog | None = None, **of_log: Any) -> None:
        self.clock = LoopClock()
        self.wheel = DeadlineWheel(self.clock)
        self.log = log or HeldLog(**of_log)
        self.machine = Sums()
        self.broken = 0
        self.shard = Shard(
            self.machine,
            self.log,
            clock=self.clock,
            deadlines=self.wheel,
            commit_timeout_ms=TIMEOUT_MS,
            on_broken=self._broke,
        )
        self.shard.begin()

    def _broke(self) -> None:
        self.broken += 1

    def add(self, key: bytes, number: int = 1, **kwargs: Any) -> Heard:
        heard = Heard()
        self.shard.submit(
            Event(lambda machine, now: machine.add(key, number, heard, **kwargs)), heard
        )
        return heard

    def get(self, key: bytes) -> Heard:
        heard = Heard()
        self.shard.submit(Event(lambda machine, now: machine.get(key, heard)), heard)
        return heard

    def add_many(self, key: bytes, count: int) -> Heard:
        heard = Heard()

        def event(machine: Sums, now: Now) -> Step:
            return Step([KeyValue(key, b"1")] * count, [Reply(heard, count)])

        self.shard.submit(Event(event), heard)
        return heard

    def keep(self) -> Heard:
        heard = Heard()
        self.shard.submit(Event(lambda machine, now: machine.keep(heard)), heard)
        return heard


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def active(**log: Any) -> ShardBench:
    bench = ShardBench(**log)
    bench.shard.activate()
    await turn()
    assert bench.machine.is_loaded
    return bench


def record(key: bytes | None, value: bytes | None, offset: int = 0) -> Record:
    return Record(offset=offset, timestamp_ms=0, key=key, value=value, headers=())
