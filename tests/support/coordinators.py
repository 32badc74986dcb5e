"""A machine to host that is simple enough to know what it must say, a log, and waiters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from broker.coordinator.step import KeyValue, Now, Reply, Step, Waiter
from broker.replication.replica import ProduceToken
from stele.errors import ErrorCode
from stele.wire.batch import Record, decode


class Heard:
    """A waiter: what it was told, in order. More than one thing is a mistake."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def answer(self, answer: Any) -> None:
        self.told.append(answer)

    def refuse(self, error: ErrorCode) -> None:
        self.told.append(error)


class Sums:
    """Keeps one sum per key, in records; answers with the sum, and can keep waiters."""

    def __init__(self) -> None:
        self.sums: dict[bytes, int] = {}
        self.written: dict[bytes, int] = {}  # the offset after a key's last record
        self.committed_below = -1
        self.is_loaded = False
        self.kept: list[Waiter] = []
        self.due: list[tuple[float, bytes]] = []  # additions of one, by time

    def replay(self, offset: int, record: KeyValue, now: Now) -> None:
        if not record.key:
            raise ValueError("a key of nothing")
        if record.value is None:
            del self.sums[record.key]
        else:
            self.sums[record.key] = int(record.value)
        self.written[record.key] = offset + 1

    def loaded(self, now: Now) -> Step:
        self.is_loaded = True
        return Step()

    def committed(self, high_watermark: int) -> None:
        assert high_watermark > self.committed_below
        self.committed_below = high_watermark

    @property
    def deadline_ms(self) -> float | None:
        return min(self.due)[0] if self.due else None

    def tick(self, now: Now) -> Step:
        due = min(self.due)
        value = str(self.sums.get(due[1], 0) + 1).encode()
        return Step([KeyValue(due[1], value), KeyValue(b"done", b"%d" % due[0])])

    def unloaded(self) -> list[Waiter]:
        kept, self.kept = self.kept, []
        return kept

    # ------------------------------------------------------------------ events

    def add(self, key: bytes, number: int, waiter: Waiter, *, size: int = 0) -> Step:
        total = self.sums.get(key, 0) + number
        return Step([KeyValue(key, b"%0*d" % (size, total))], [Reply(waiter, total)])

    def get(self, key: bytes, waiter: Waiter) -> Step:
        after = self.written.get(key, -1)
        return Step(replies=[Reply(waiter, self.sums.get(key), after)])

    def keep(self, waiter: Waiter) -> Step:
        self.kept.append(waiter)
        return Step()


class HeldLog:
    """A log whose high watermark moves, and whose appends fail, when the test says so."""

    def __init__(self, *, max_batch_bytes: int = 1 << 20) -> None:
        self.refusal = ErrorCode.NONE
        self.no_writes = ErrorCode.NONE
        self.max_batch_bytes = max_batch_bytes
        self.high_watermark = 0
        self.batches: list[list[Record]] = []
        self.tokens: list[ProduceToken] = []
        self.failure: Exception | None = None
        self.watcher: Callable[[], None] | None = None

    @property
    def write_refusal(self) -> ErrorCode:
        return self.no_writes or self.refusal

    @property
    def end_offset(self) -> int:
        return sum(len(each) for each in self.batches)

    def append(self, batch: bytearray, token: ProduceToken) -> int:
        assert len(batch) <= self.max_batch_bytes
        if self.failure is not None:
            raise self.failure
        base_offset = self.end_offset
        self.batches.append(decode(batch))
        self.tokens.append(token)
        return base_offset

    def watch(self, on_advanced: Callable[[], None]) -> None:
        self.watcher = on_advanced

    def unwatch(self) -> None:
        self.watcher = None

    @property
    def is_led(self) -> bool:
        return True

    async def records(self) -> AsyncIterator[Sequence[Record]]:
        for batch in self.batches:
            yield batch

    def commit(self, offset: int | None = None) -> None:
        """Raise the high watermark, to the end of the log if nothing else is said."""
        self.high_watermark = self.end_offset if offset is None else offset
        if self.watcher is not None:
            self.watcher()


class QuickLog(HeldLog):
    """Commits whatever is appended, in the next turn of the loop."""

    def append(self, batch: bytearray, token: ProduceToken) -> int:
        asyncio.get_running_loop().call_soon(self.commit)
        return super().append(batch, token)
