"""A machine to host that is simple enough to know what it must say, a log, and waiters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from broker.coordinator.step import KeyValue, Now, Producer, Reply, Request, Step, Waiter
from broker.replication.hosted import Loaded
from broker.replication.replica import OnMarker, ProduceToken
from stele.errors import ErrorCode
from stele.wire.batch import Record, decode, read_header
from stele.wire.control_records import EndMarker, end_marker_batch


class Heard:
    """A waiter with its answers, in order. More than one answer is a mistake."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def answer(self, answer: Any) -> None:
        self.told.append(answer)

    def refuse(self, error: ErrorCode) -> None:
        self.told.append(error)


@dataclass(frozen=True)
class Event(Request[Any]):
    """A request to ``Sums``: what it makes of it."""

    decide: Callable[[Any, Now], Any]


class Sums:
    """Keeps one sum per key, in records; answers with the sum, and can keep waiters."""

    def __init__(self) -> None:
        self.sums: dict[bytes, int] = {}
        self.written: dict[bytes, int] = {}  # the offset after a key's last record
        self.committed_below = -1
        self.is_loaded = False
        self.kept: list[Waiter] = []
        self.pending: dict[int, dict[bytes, int]] = {}  # by producer
        self.due: list[tuple[float, bytes]] = []  # additions of one, by time

    def replay(self, offset: int, record: KeyValue, now: Now) -> None:
        if not record.key:
            raise ValueError("a key of nothing")
        if record.value is None:
            del self.sums[record.key]
        else:
            self.sums[record.key] = int(record.value)
        self.written[record.key] = offset + 1

    def replay_pending(self, offset: int, record: KeyValue, producer_id: int, now: Now) -> None:
        if record.value is None:
            raise ValueError("nothing")
        self.pending.setdefault(producer_id, {})[record.key] = int(record.value)

    def end_transaction(self, offset: int, producer_id: int, *, commits: bool, now: Now) -> None:
        pending = self.pending.pop(producer_id, {})
        for key, value in pending.items() if commits else ():
            self.sums[key] = value
            self.written[key] = offset + 1

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

    def put_off(self, until_ms: float, now: Now) -> str:
        due = min(self.due)
        self.due.remove(due)
        self.due.append((until_ms, due[1]))
        return f"an addition to {due[1]!r}"

    def unloaded(self) -> list[Waiter]:
        kept, self.kept = self.kept, []
        return kept

    # ------------------------------------------------------------------ events

    def take(self, request: Event, waiter: Waiter, now: Now) -> Step:
        step: Step = request.decide(self, now)
        return step

    def note(self, news: Event, now: Now) -> None:
        news.decide(self, now)

    def add(self, key: bytes, number: int, waiter: Waiter, *, size: int = 0) -> Step:
        total = self.sums.get(key, 0) + number
        return Step([KeyValue(key, b"%0*d" % (size, total))], [Reply(waiter, total)])

    def put(self, key: bytes, number: int, waiter: Waiter, producer: Producer) -> Step:
        """Have a sum once the producer's transaction is committed."""
        record = KeyValue(key, b"%d" % number)
        return Step([record], [Reply(waiter, number)], producer=producer)

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
        self.is_led = True
        self.leader_epoch = 0
        self.no_writes = ErrorCode.NONE
        self.max_batch_bytes = max_batch_bytes
        self.high_watermark = 0
        self.batches: list[list[Record]] = []
        self.tokens: list[ProduceToken] = []
        self.failure: Exception | None = None
        self.watcher: Callable[[], None] | None = None
        self.on_marker: OnMarker | None = None
        self.producers: list[Producer | None] = []
        """For each batch the producer whose transaction it belongs to or ends."""
        self.markers: dict[int, EndMarker] = {}  # by their offsets
        self.confirmed: set[Producer] = set()
        """The open transactions that the partition is part of."""
        self.verdict = ErrorCode.NONE
        """What the transaction coordinator says when it is asked."""
        self.held: list[Callable[[], None]] | None = None
        """The questions that it has not answered; None: it answers at once."""
        self.added: list[str] = []

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
        header = read_header(batch)
        producer = Producer(header.producer_id, header.producer_epoch)
        assert not header.is_transactional or producer in self.confirmed
        assert not header.is_transactional or header.base_sequence == 0
        self.producers.append(producer if header.is_transactional else None)
        self.batches.append(decode(batch))
        self.tokens.append(token)
        return base_offset

    def begin_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        adds: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        if adds:
            self.added.append(transactional_id)

        def answer() -> None:
            if self.verdict is ErrorCode.NONE:
                self.confirmed.add(Producer(producer_id, producer_epoch))
            done(self.verdict)

        if self.held is None:
            answer()
        else:
            self.held.append(answer)

    def transaction_refusal(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        is_open = Producer(producer_id, producer_epoch) in self.confirmed
        return ErrorCode.NONE if is_open else ErrorCode.INVALID_TXN_STATE

    def end_transaction(self, producer: Producer, *, commits: bool) -> None:
        """Append a marker."""
        self.confirmed.discard(producer)
        batch = end_marker_batch(*producer, commit=commits, coordinator_epoch=0, timestamp_ms=0)
        offset = self.end_offset
        self.batches.append([each._replace(offset=offset) for each in decode(batch)])
        self.producers.append(producer)
        self.markers[offset] = EndMarker(commits, 0)
        if self.on_marker is not None:
            self.on_marker(offset, producer.id, self.markers[offset])

    def watch(self, on_advanced: Callable[[], None], on_marker: OnMarker) -> None:
        self.watcher, self.on_marker = on_advanced, on_marker

    def unwatch(self) -> None:
        self.watcher = self.on_marker = None

    async def records(self) -> AsyncIterator[Loaded]:
        for batch in self.loaded():
            yield batch

    def loaded(self) -> Iterator[Loaded]:
        for batch, producer in zip(self.batches, self.producers, strict=True):
            if producer is None:
                yield Loaded(batch)
            else:
                yield Loaded(batch, producer.id, self.markers.get(batch[0].offset))

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
