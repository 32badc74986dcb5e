"""A bench that looks at every step: one with records must have changed nothing."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any

from broker.coordinator.deadlines import DeadlineHeap
from broker.coordinator.step import Step
from metadata.topics import Topics
from tests.support.coordinators import Heard
from tests.support.groups import GroupBench


def inspect(value: Any) -> Any:
    """All that a machine holds, except its heap, which is put in order when it is looked at."""
    match value:
        case DeadlineHeap():
            return None
        case None | str() | bytes() | int() | float() | Enum() | Heard():
            return value
        case dict():
            return {inspect(key): inspect(each) for key, each in value.items()}
        case set() | frozenset():
            return frozenset(map(inspect, value))
        case list() | tuple() | deque():
            return tuple(map(inspect, value))
        case Topics():
            return id(value)  # it is immutable
    if callable(value):
        return None
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names = slots or vars(value)
    # What a timer has in the heap goes with the heap. The number of a deletion whose records were
    # not written is never given again.
    kept = (name for name in names if name not in ("queued_ms", "_last_deletion"))
    return type(value).__name__, {name: inspect(getattr(value, name, None)) for name in kept}


class Strict(GroupBench):
    """Looks at every step: one with records must have changed nothing."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.before: Any = None

    def ask(self, event: Any) -> Heard:
        self.before = inspect(vars(self.machine))
        return super().ask(event)

    def pass_time(self, ms: float) -> None:
        self.before = inspect(vars(self.machine))
        super().pass_time(ms)

    def take(self, step: Step, waiter: Any = None) -> None:
        if step.records and self.before is not None:
            assert inspect(vars(self.machine)) == self.before
        super().take(step, waiter)
        self.before = inspect(vars(self.machine))
