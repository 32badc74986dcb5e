"""``stele perf consume``: the run itself, and the lines of Kafka's kafka-consumer-perf-test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from stele.consumer.group.listener import RebalanceListener
from stele.records import ConsumerRecord
from stele.world import Clock

_MB = 1024 * 1024
_POLL_MS = 100
_FIGURES = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
_FETCH_FIGURES = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER = f"start.time, end.time, {_FIGURES}, {_FETCH_FIGURES}"
DETAILED_HEADER = f"time, threadId, {_FIGURES}, {_FETCH_FIGURES}"


class Consuming(Protocol):
    """What is measured: ``stele.aio.Consumer``."""

    async def partitions_for(self, topic: str) -> list[int]: ...

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None: ...

    def subscribe(self, topics: Iterable[str], *, listener: RebalanceListener) -> None: ...

    async def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> Sequence[ConsumerRecord]: ...


@dataclass(frozen=True, slots=True)
class Consumed:
    """Records and bytes (of keys and values) in a time."""

    records: int
    bytes: int
    seconds: float
    assignment_s: float
    """The part of it that finds the partitions (Kafka's tool: that joins the group)."""

    @property
    def figures(self) -> dict[str, float]:
        fetch_s = self.seconds - self.assignment_s
        megabytes = self.bytes / _MB
        return {
            "data.consumed.in.MB": megabytes,
            "MB.sec": _rate(megabytes, self.seconds),
            "data.consumed.in.nMsg": self.records,
            "nMsg.sec": _rate(self.records, self.seconds),
            "rebalance.time.ms": round(self.assignment_s * 1000),
            "fetch.time.ms": round(fetch_s * 1000),
            "fetch.MB.sec": _rate(megabytes, fetch_s),
            "fetch.nMsg.sec": _rate(self.records, fetch_s),
        }


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def line(times: Iterable[str], figures: dict[str, float]) -> str:
    """Numbers of records and of milliseconds are whole, as Kafka's tool prints them."""
    texts = (str(each) if isinstance(each, int) else f"{each:.4f}" for each in figures.values())
    return ", ".join([*times, *texts])


def time_text(time_ms: int) -> str:
    """In UTC, in the default form of Kafka's tool."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}:{time_ms % 1000:03d}"


class RebalanceTimes:
    """How long a member of a group was without partitions: a listener of its rebalances."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = clock.monotonic()
        self._owned: set[tuple[str, int]] = set()
        self._ended_s = 0.0  # of the times that are over

    @property
    def total_s(self) -> float:
        return self._ended_s + (0.0 if self._owned else self._clock.monotonic() - self._since_s)

    def assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        self._ended_s = self.total_s
        self._since_s = self._clock.monotonic()
        self._owned.update(partitions)

    def revoked(self, partitions: Iterable[tuple[str, int]]) -> None:
        self._owned.difference_update(partitions)
        if not self._owned:
            self._since_s = self._clock.monotonic()


class ConsumeRun:
    """Reads all partitions of a topic, or those that a group assigns, until enough records came, or
    none for too long."""

    def __init__(
        self,
        consumer: Consuming,
        clock: Clock,
        *,
        topic: str,
        records: int,
        silence_s: float,
        in_group: bool = False,
        on_interval: Callable[[Consumed, Consumed], None] = lambda total, interval: None,
        interval_s: float = float("inf"),
    ) -> None:
        """``silence_s``: the longest time without a record. ``in_group``: the consumer has a group,
        which assigns the partitions. ``on_interval`` is given all that was read so far, and what
        was read since the last call."""
        self._consumer = consumer
        self._clock = clock
        self._topic = topic
        self._wanted = records
        self._silence_s = silence_s
        self._in_group = in_group
        self._on_interval = on_interval
        self._interval_s = interval_s
        self._records = 0
        self._bytes = 0
        self._began_s = clock.monotonic()
        self._rebalances = RebalanceTimes(clock)

    @property
    def consumed(self) -> Consumed:
        """What was read so far."""
        elapsed_s = self._clock.monotonic() - self._began_s
        return Consumed(self._records, self._bytes, elapsed_s, self._rebalances.total_s)

    async def _begin(self) -> None:
        self._began_s = self._clock.monotonic()
        times = self._rebalances = RebalanceTimes(self._clock)
        if self._in_group:
            listener = RebalanceListener(times.assigned, times.revoked, times.revoked)
            self._consumer.subscribe([self._topic], listener=listener)
        else:
            partitions = await self._consumer.partitions_for(self._topic)
            names = [(self._topic, each) for each in partitions]
            self._consumer.assign(names)
            times.assigned(names)

    async def run(self) -> Consumed:
        await self._begin()
        now = heard = self._clock.monotonic()
        reported, assignment_s, before = self._began_s, 0.0, (0, 0)
        while self._records < self._wanted and now - heard <= self._silence_s:
            records = await self._consumer.poll(timeout_ms=_POLL_MS)
            now = self._clock.monotonic()
            if records:
                heard = now
                self._records += len(records)
                self._bytes += sum(
                    len(each.key or b"") + len(each.value or b"") for each in records
                )
            if now - reported >= self._interval_s:
                total = self.consumed
                interval = Consumed(
                    total.records - before[0],
                    total.bytes - before[1],
                    now - reported,
                    total.assignment_s - assignment_s,
                )
                self._on_interval(total, interval)
                reported, assignment_s = now, total.assignment_s
                before = (total.records, total.bytes)
        return self.consumed
