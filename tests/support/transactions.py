"""A transaction coordinator's machine with a log, a clock, and producers to play with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from broker.coordinator.step import KeyValue, Now, Reply, Request, Step, Waiter
from broker.coordinator.transaction.config import TransactionConfig
from broker.coordinator.transaction.counters import TransactionCounters
from broker.coordinator.transaction.machine import TransactionMachine
from broker.coordinator.transaction.types import (
    NEEDS_PRODUCER_ID,
    AddPartitionsAnswer,
    AddPartitionsRequest,
    DescribedTransaction,
    DescribeRequest,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    ListAnswer,
    ListRequest,
    MarkersDue,
    MarkersWritten,
    TransactionRef,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.support.coordinators import Heard

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1_000

Event = Callable[[TransactionMachine, Waiter, Now], Step]


def partitions(*names: str) -> tuple[TopicPartition, ...]:
    """``partitions("a0", "b1")``: a topic is one letter."""
    return tuple(TopicPartition(each[0], int(each[1:])) for each in names)


class TransactionBench:
    """Hosts a machine as a shard does: appends the records of its steps and has it replay them,
    gives its answers when they are committed, and ticks when something is due."""

    def __init__(self, version: int = 2, **config: Any) -> None:
        self.config = TransactionConfig(**config)
        self.version = version
        """The level of ``transaction.version``, also of the clients."""
        self.log: list[KeyValue] = []
        self.high_watermark = 0
        self.now = Now(0.0, START_MS)
        self.refusal = ErrorCode.NONE
        """Why the log takes no records, if it takes none."""
        self.commits_at_once = True
        self.writes_markers = True
        """Whether markers are written as soon as they are due."""
        self.due: list[MarkersDue] = []
        """Markers that were asked for and are not written."""
        self.calls = 0
        """How often the machine said that markers are due."""
        self.counters = TransactionCounters()
        self._producer_ids = itertools.count(FIRST_PRODUCER_ID)
        self._waiting: list[Reply] = []
        self.machine = self.fresh()
        self.machine.loaded(self.now)

    def fresh(self) -> TransactionMachine:
        return TransactionMachine(
            self.config, lambda: self.version, self._on_markers_due, self.counters
        )

    def _on_markers_due(self) -> None:
        self.calls += 1

    # ------------------------------------------------------------------ hosting

    def take(self, step: Step, waiter: Waiter | None = None) -> None:
        if step.records and self.refusal is not ErrorCode.NONE:
            if waiter is not None:
                waiter.refuse(self.refusal)
            return
        for record in step.records:
            self.append(record)
        for reply in step.replies:
            after = len(self.log) if step.records else reply.after
            self._waiting.append(reply._replace(after=after))
        self._answer()
        if self.commits_at_once:
            self.commit()

    def append(self, record: KeyValue) -> None:
        self.log.append(KeyValue(*record))  # a reload has only the bytes
        self.machine.replay(len(self.log) - 1, record, self.now)

    def new_producer_id(self) -> int:
        return next(self._producer_ids)

    def commit(self, high_watermark: int | None = None) -> None:
        self.high_watermark = len(self.log) if high_watermark is None else high_watermark
        self.machine.committed(self.high_watermark)
        self._answer()
        self.due += self.machine.due_markers()
        if self.writes_markers:
            self.write_markers()

    def _answer(self) -> None:
        told = [each for each in self._waiting if each.after <= self.high_watermark]
        self._waiting = [each for each in self._waiting if each.after > self.high_watermark]
        for each in told:
            each.waiter.answer(each.answer)

    def write_markers(self, only: Iterable[TopicPartition] | None = None) -> None:
        """Write the markers that are due, in ``only`` these partitions or in all, and go on."""
        due, self.due = self.due, []
        for each in due:
            done = set(each.partitions if only is None else only)
            self.mark(each.ref, done)
            left = tuple(partition for partition in each.partitions if partition not in done)
            if left:
                self.due.append(each._replace(partitions=left))
        self.pass_time(0)

    def pass_time(self, ms: float) -> None:
        """Let time pass, and have the machine do what is due."""
        self.now = Now(self.now.monotonic_ms + ms, self.now.time_ms + int(ms))
        while self.refusal is ErrorCode.NONE:
            deadline_ms = self.machine.deadline_ms
            if deadline_ms is None or deadline_ms > self.now.monotonic_ms:
                break
            self.take(self.machine.tick(self.now))

    def reload(self, *, keeps: int | None = None) -> None:
        """Another broker leads the partition. It has the log, or only its first records. It refuses
        all waiters, and asks for markers again."""
        for each in self._waiting:
            each.waiter.refuse(ErrorCode.NOT_COORDINATOR)
        for waiter in self.machine.unloaded():
            waiter.refuse(ErrorCode.NOT_COORDINATOR)
        self._waiting, self.due = [], []
        del self.log[len(self.log) if keeps is None else keeps :]
        self.machine = self.fresh()
        for offset, record in enumerate(self.log):
            self.machine.replay(offset, record, self.now)
        self.machine.committed(len(self.log))
        self.take(self.machine.loaded(self.now))
        self.commit()
        self.pass_time(0)

    # ------------------------------------------------------------------ requests

    def mark(self, ref: TransactionRef, partitions: Iterable[TopicPartition]) -> None:
        """Tell the machine that these partitions have their markers."""
        self.machine.note(MarkersWritten(ref, tuple(partitions)), self.now)

    def ask(self, request: Request[Any]) -> Heard:
        heard = Heard()
        self.take(self.machine.take(request, heard, self.now), heard)
        return heard

    def told(self, request: Request[Any]) -> Any:
        (answer,) = self.ask(request).told
        return answer

    def init(self, name: str = "t", **fields: Any) -> InitAnswer:
        request = InitRequest(name, **({"transaction_timeout_ms": TIMEOUT_MS} | fields))
        answer = self.told(request)
        if answer is NEEDS_PRODUCER_ID:
            request = replace(request, fresh_producer_id=self.new_producer_id())
            answer = self.told(request)
        assert isinstance(answer, InitAnswer)
        return answer

    def producer(self, name: str = "t", **fields: Any) -> TransactionRef:
        """A producer that has begun."""
        answer = self.init(name, **fields)
        assert answer.error is ErrorCode.NONE, answer
        return TransactionRef(name, answer.producer_id, answer.producer_epoch)

    def add(self, ref: TransactionRef, *names: str, **fields: Any) -> AddPartitionsAnswer:
        fields = {"client_version": self.version if self.version == 2 else 0} | fields
        request = AddPartitionsRequest(ref, partitions(*names), **fields)
        answer = self.told(request)
        assert isinstance(answer, AddPartitionsAnswer)
        return answer

    def end(self, ref: TransactionRef, *, commit: bool = True, **fields: Any) -> EndAnswer:
        fields = {"client_version": self.version if self.version == 2 else 0} | fields
        request = EndRequest(ref, commit, **fields)
        answer = self.told(request)
        if answer is NEEDS_PRODUCER_ID:
            request = replace(request, fresh_producer_id=self.new_producer_id())
            answer = self.told(request)
        assert isinstance(answer, EndAnswer)
        return answer

    def describe(self, name: str = "t") -> DescribedTransaction:
        answer = self.told(DescribeRequest(name))
        assert isinstance(answer, DescribedTransaction)
        return answer

    def list(self, **fields: Any) -> ListAnswer:
        request = ListRequest(**fields)
        answer = self.told(request)
        assert isinstance(answer, ListAnswer)
        return answer

    def state(self, name: str = "t") -> str:
        """The state, producer id, epoch and partitions in one line."""
        told = self.describe(name)
        if told.error is not ErrorCode.NONE:
            return told.error.name
        number = told.producer_id - FIRST_PRODUCER_ID
        names = " ".join(f"{each.topic}{each.partition}" for each in told.partitions)
        return f"{told.state.label} {number}:{told.producer_epoch} {names}".rstrip()
