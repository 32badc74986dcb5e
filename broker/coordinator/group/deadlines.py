"""The deadlines of all groups of a partition, in one heap."""

from __future__ import annotations

import enum
import heapq
import itertools


class TimerKind(enum.Enum):
    """What is to be done when a deadline has passed."""

    SESSION = "session"  # a member has not been heard of
    JOIN = "join"  # members have had their time to join a generation
    SYNC = "sync"  # members have had their time to fetch their assignments
    EXPIRY = "expiry"  # offsets may have become too old
    DELETED_TOPICS = "deleted topics"  # offsets may be of topics that are no more


class Timer:
    """One deadline, which may be moved at any time, or not be set."""

    __slots__ = ("_deadlines", "at_ms", "group_id", "kind", "member_id", "queued_ms")

    def __init__(
        self, deadlines: Deadlines, kind: TimerKind, group_id: str = "", member_id: str = ""
    ) -> None:
        self._deadlines = deadlines
        self.kind = kind
        self.group_id = group_id
        self.member_id = member_id
        self.at_ms: float | None = None
        self.queued_ms: float | None = None

    def set(self, at_ms: float) -> None:
        self.at_ms = at_ms
        if self.queued_ms is None or at_ms < self.queued_ms:
            self._deadlines.queue(self, at_ms)

    def cancel(self) -> None:
        self.at_ms = None


class Deadlines:
    """Timers by time, the first that was queued among equals.

    Heartbeats move deadlines all the time. So an entry of the heap is left where it is until it
    comes to the top, and is then queued again if its timer is set to a later time.
    """

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        # A timer that is set has an entry at its `queued_ms`, which is no later than its time.
        # Other entries of it are left over.
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def queue(self, timer: Timer, at_ms: float) -> None:
        timer.queued_ms = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), timer))

    def first(self) -> Timer | None:
        """The timer that is set to the earliest time. It stays set."""
        while self._heap:
            at_ms, _, timer = self._heap[0]
            if timer.queued_ms == at_ms == timer.at_ms:
                return timer
            heapq.heappop(self._heap)
            if timer.queued_ms == at_ms:
                timer.queued_ms = None
                if timer.at_ms is not None:
                    timer.set(timer.at_ms)
        return None
