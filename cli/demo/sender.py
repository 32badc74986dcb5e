"""Streaming numbered order lines into a topic, and what the producer saw meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cli.orders import OrderLine
from stele.aio import Producer
from stele.errors import SteleError
from stele.producer.partitioner import partition_of
from stele.records import RecordMetadata
from stele.world import Clock

LINE_HEADER = "line"
"""Each record carries its line number: equal lines are honest orders, so content proves nothing."""

_YIELD_EVERY = 256


@dataclass(slots=True)
class Outage:
    """The longest time without an acknowledgement from the partitions that a kill touched.

    The longest until the next kill, not the first: an answer that the victim had sent may be
    noticed after its death.
    """

    victim: str
    partitions: frozenset[int]
    last_acknowledged_at: float
    seconds: float | None = None  # None until one of the partitions acknowledged again

    def on_acknowledged(self, now: float) -> None:
        self.seconds = max(self.seconds or 0.0, now - self.last_acknowledged_at)
        self.last_acknowledged_at = now


@dataclass(slots=True)
class OrderSender:
    """Sends lines in order, keyed by invoice; line ``n`` of the input carries the number ``n``.

    A line counts as acknowledged when its future says so; after ``run`` every line is.
    """

    producer: Producer
    clock: Clock
    topic: str
    partitions: int
    acknowledged: int = 0
    bytes_acknowledged: int = 0
    outages: list[Outage] = field(default_factory=list)
    longest_pause_s: float = 0.0
    _outstanding: Counter[int] = field(default_factory=Counter)
    _failure: BaseException | None = None
    _last_acknowledged_at: float = 0.0
    _progressed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, lines: Iterable[OrderLine]) -> int:
        """Send all lines and wait for them; return how many. Raises SteleError when one fails."""
        self._last_acknowledged_at = self.clock.monotonic()
        count = 0
        for count, line in enumerate(lines, 1):
            partition = partition_of(line.key, self.partitions)
            header = [(LINE_HEADER, b"%d" % count)]
            delivery = await self.producer.send(
                self.topic, line.value, line.key, header, partition=partition
            )
            self._outstanding[partition] += 1
            size = len(line.value)
            delivery.add_done_callback(
                lambda done, p=partition, s=size: self._on_done(done, p, s)  # type: ignore[misc]
            )
            if count % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
                self._raise_failure()
        await self.producer.flush()
        self._raise_failure()
        return count

    def _on_done(self, delivery: asyncio.Future[RecordMetadata], partition: int, size: int) -> None:
        self._outstanding[partition] -= 1
        error = delivery.exception() if not delivery.cancelled() else asyncio.CancelledError()
        if error is not None:
            self._failure = self._failure or error
            return
        self.acknowledged += 1
        self.bytes_acknowledged += size
        now = self.clock.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now - self._last_acknowledged_at)
        self._last_acknowledged_at = now
        if self.outages and partition in self.outages[-1].partitions:
            self.outages[-1].on_acknowledged(now)
        self._progressed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise SteleError(f"an order line was refused: {self._failure}") from self._failure

    async def until_acknowledged(self, lines: int) -> None:
        """Wait until so many lines are acknowledged."""
        await self.until(lambda: self.acknowledged >= lines)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, looked at anew after every acknowledgement."""
        while not condition():
            self._progressed.clear()
            await self._progressed.wait()

    def busiest(self, partitions: Iterable[int]) -> int:
        """The partition with the most lines that were sent and not acknowledged."""
        return max(partitions, key=lambda each: (self._outstanding[each], -each))

    def outstanding(self, partitions: Iterable[int]) -> int:
        return sum(self._outstanding[each] for each in partitions)

    def note_kill(self, victim: str, partitions: Iterable[int]) -> None:
        """A leader of these partitions, or the controller, has just been killed."""
        self.outages.append(Outage(victim, frozenset(partitions), self.clock.monotonic()))
