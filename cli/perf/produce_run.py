"""``stele perf produce``: the run itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from cli.perf.pacing import send_paced, send_unpaced
from cli.perf.payload import Payload
from cli.perf.send_stats import SendStats
from stele.errors import SteleError
from stele.world import Clock

Say = Callable[[str], None]


class Producing(Protocol):
    """What is measured: ``stele.aio.Producer``."""

    async def send(self, topic: str, value: bytes) -> asyncio.Future[Any]: ...

    async def partitions_for(self, topic: str) -> list[int]: ...

    async def flush(self) -> None: ...

    async def begin_transaction(self) -> None: ...

    async def commit_transaction(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """What is sent."""

    topic: str
    records: int
    payload: Payload
    per_s: float | None = None  # None: as fast as the producer takes them
    warmup_records: int = 0
    """So many are left out of the second summary."""
    transaction_s: float | None = None
    """How long a transaction is; None: there are none."""


class ProduceRun:
    """Sends a load and counts what is acknowledged."""

    def __init__(
        self, producer: Producing, load: ProduceLoad, clock: Clock, say: Say, interval_s: float
    ) -> None:
        """``say`` is given a line every ``interval_s``."""
        self._producer = producer
        self._load = load
        self._clock = clock
        self._say = say
        self._interval_s = interval_s
        self._said_s = clock.monotonic()
        self.stats = SendStats(self._said_s)
        self.steady: SendStats | None = None
        self.failed = 0
        self.failure: BaseException | None = None  # the first one
        self._transaction_began_s: float | None = None  # None: none is open

    async def run(self) -> None:
        """Returns when all records are acknowledged or have failed. Raises SteleError if one
        cannot be sent at all."""
        load = self._load
        await self._producer.partitions_for(load.topic)  # to look it up is no latency of a record
        self._said_s = self._clock.monotonic()
        self.stats = SendStats(self._said_s)
        if load.per_s is None:
            await send_unpaced(self._send, load.records, self._clock)
        else:
            await send_paced(self._send, load.records, load.per_s, self._clock)
        if self._transaction_began_s is not None:
            await self._producer.commit_transaction()
        await self._flush()

    async def _flush(self) -> None:
        failure: SteleError | None = None
        try:
            await self._producer.flush()
        except SteleError as error:
            failure = error
        await asyncio.sleep(0)  # the callbacks of the last records run
        if failure is not None and not self.failed:
            raise failure

    async def _send(self, number: int, intended_s: float) -> None:
        if number and number == self._load.warmup_records:
            self.steady = SendStats(self._clock.monotonic(), is_steady=True)
        value = self._load.payload(number)
        await self._change_transaction()
        delivery = await self._producer.send(self._load.topic, value)
        delivery.add_done_callback(partial(self._done, intended_s, len(value), self.steady))

    async def _change_transaction(self) -> None:
        """Commit the transaction if it is old enough, and begin one if none is open."""
        if self._load.transaction_s is None:
            return
        began_s = self._transaction_began_s
        if began_s is not None:
            if self._clock.monotonic() - began_s < self._load.transaction_s:
                return
            await self._producer.commit_transaction()
        await self._producer.begin_transaction()
        self._transaction_began_s = self._clock.monotonic()

    def _done(
        self, intended_s: float, size: int, steady: SendStats | None, delivery: asyncio.Future[Any]
    ) -> None:
        error = delivery.exception()
        if error is not None:
            self.failed += 1
            self.failure = self.failure or error
            return
        now = self._clock.monotonic()
        self.stats.add(now - intended_s, size)
        if steady is not None:
            steady.add(now - intended_s, size)
        if now - self._said_s >= self._interval_s:
            self._said_s = now
            line = (steady or self.stats).take_window(now)
            if line is not None:
                self._say(line)
