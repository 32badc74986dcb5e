"""All deadlines of a machine, in one heap."""

from __future__ import annotations

import heapq
import itertools
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound="Deadline")


class Deadline:
    """A deadline that can be moved and cancelled."""

    __slots__ = ("_deadlines", "at_ms", "queued_ms")

    def __init__(self, deadlines: DeadlineHeap[Any]) -> None:
        self._deadlines = deadlines
        self.at_ms: float | None = None
        self.queued_ms: float | None = None

    def set(self, at_ms: float) -> None:
        self.at_ms = at_ms
        if self.queued_ms is None or at_ms < self.queued_ms:
            self._deadlines.queue(self, at_ms)

    def cancel(self) -> None:
        self.at_ms = None


class DeadlineHeap(Generic[T]):
    """Deadlines ordered by time, and by the order in which they were queued.

    Most deadlines are moved or cancelled before they pass. So an entry of the heap stays where it
    is until it is the first one. If its deadline is at a later time by then, it is queued again.
    """

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        # A deadline that is set has an entry at its `queued_ms`, which is not later than its
        # `at_ms`. Its other entries have no meaning.
        self._heap: list[tuple[float, int, T]] = []
        self._numbers = itertools.count()

    def queue(self, deadline: T, at_ms: float) -> None:
        deadline.queued_ms = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), deadline))

    def first(self) -> T | None:
        """The deadline with the earliest time. It stays set."""
        while self._heap:
            at_ms, _, deadline = self._heap[0]
            if deadline.queued_ms == at_ms == deadline.at_ms:
                return deadline
            heapq.heappop(self._heap)
            if deadline.queued_ms == at_ms:
                deadline.queued_ms = None
                if deadline.at_ms is not None:
                    deadline.set(deadline.at_ms)
        return None

    @property
    def first_ms(self) -> float | None:
        """The earliest time; None: nothing is set."""
        first = self.first()
        return None if first is None else first.at_ms

    def due(self, now_ms: float) -> T | None:
        """The earliest one, if its time has come. It stays set."""
        first_ms = self.first_ms
        return None if first_ms is None or first_ms > now_ms else self.first()
