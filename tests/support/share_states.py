"""A share coordinator's machine with a log and a clock to play with."""

from __future__ import annotations

from typing import Any

from broker.coordinator.share.machine import ShareMachine
from broker.coordinator.share.types import StateAnswer, StateRequest
from broker.coordinator.step import KeyValue, Now, Reply, Step
from stele.errors import ErrorCode
from tests.support.coordinators import Heard
from tests.support.groups import told
from tests.support.strict_steps import inspect

T, U = b"t" * 16, b"u" * 16
START_MS = 1_700_000_000_000


class StateBench:
    """Hosts the machine as a shard does, and looks at every step: one with records must have
    changed nothing. Its log can be cut."""

    def __init__(self) -> None:
        self.counts = {T: 3, U: 3}
        self.log: list[KeyValue] = []
        self.start = 0  # the log is cut below
        self.high_watermark = 0
        self.commits_at_once = True
        self.refusal = ErrorCode.NONE
        self.now = Now(0.0, START_MS)
        self._waiting: list[Reply] = []
        self.machine = self.rebuilt()
        self.take(self.machine.loaded(self.now))

    def rebuilt(self) -> ShareMachine:
        """The next coordinator, at the end of its load."""
        machine = ShareMachine(
            lambda topic_id, number: 0 <= number < self.counts.get(topic_id, 0),
            updates_per_snapshot=4,
            log_records_min=10,
        )
        for offset in range(self.start, len(self.log)):
            machine.replay(offset, self.log[offset], self.now)
        return machine

    def reload(self) -> None:
        """The coordinator changes. It answers when all that it has loaded is committed."""
        self._waiting.clear()
        self.machine = self.rebuilt()
        self.commit()
        self.take(self.machine.loaded(self.now))

    def cut(self) -> None:
        """Delete the part of the log that is not needed."""
        self.start = max(self.start, self.machine.needed_from)

    def cut_when_due(self) -> None:
        """Delete what the coordinator asks to have deleted."""
        assert self.machine.cut_offset <= self.machine.needed_from
        self.start = max(self.start, self.machine.cut_offset)

    def send(self, request: StateRequest) -> Heard:
        heard = Heard()
        before = self._seen()
        self.take(self.machine.take(request, heard, self.now), before, heard)
        return heard

    def ask(self, request: StateRequest) -> StateAnswer:
        return told(self.send(request), StateAnswer)

    def _seen(self) -> Any:
        return inspect(vars(self.machine))

    def take(self, step: Step, before: Any = None, heard: Heard | None = None) -> None:
        if step.records:
            assert before is None or before == self._seen()
            if self.refusal is not ErrorCode.NONE:
                if heard is not None:
                    heard.refuse(self.refusal)
                return
        for record in step.records:
            self.log.append(record)
            self.machine.replay(len(self.log) - 1, record, self.now)
        for reply in step.replies:
            after = len(self.log) if step.records else reply.after
            self._waiting.append(reply._replace(after=after))
        if self.commits_at_once:
            self.commit()
        self._answer()

    def commit(self) -> None:
        self.high_watermark = len(self.log)
        self.machine.committed(self.high_watermark)
        self._answer()

    def _answer(self) -> None:
        due = [each for each in self._waiting if each.after <= self.high_watermark]
        self._waiting = [each for each in self._waiting if each not in due]
        for waiter, answer, _ in due:
            waiter.answer(answer)

    def pass_time(self, ms: float) -> None:
        """All that is due, too."""
        self.now = Now(self.now.monotonic_ms + ms, self.now.time_ms + int(ms))
        for _ in range(200):
            deadline_ms = self.machine.deadline_ms
            is_due = deadline_ms is not None and deadline_ms <= self.now.monotonic_ms
            if not is_due or self.refusal is not ErrorCode.NONE:
                return
            before = self._seen()
            self.take(self.machine.tick(self.now), before)
        raise AssertionError("the work of the share coordinator has no end")
