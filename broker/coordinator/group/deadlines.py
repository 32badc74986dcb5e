"""The deadlines of all groups of a partition, in one heap."""

from __future__ import annotations

import enum
import heapq
import itertools


class TimerKind(enum.Enum):
    """What a deadline is for."""

    SESSION = "session"  # the next heartbeat of a member
    JOIN = "join"  # the time in which members join the next generation
    SYNC = "sync"  # the time in which members fetch their assignments
    REVOCATION = "revocation"  # the time in which a member revokes partitions
    EXPIRY = "expiry"  # the next check for expired offsets
    DELETED_TOPICS = "deleted topics"  # offsets of deleted topics have to be removed


class Timer:
    """A deadline that can be moved and cancelled."""

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
    """All timers, ordered by time, and by the order in which they were queued.

    Heartbeats often move deadlines. So an entry of the heap stays where it is until it is the first
    one. If its timer is set to a later time by then, the timer is queued again.
    """

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        # A timer that is set has an entry at its `queued_ms`, which is not later than its `at_ms`.
        # Its other entries have no meaning.
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def queue(self, timer: Timer, at_ms: float) -> None:
        timer.queued_ms = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), timer))

    def first(self) -> Timer | None:
        """The timer with the earliest time. It stays set."""
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
