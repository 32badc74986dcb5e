"""A leader's knowledge of one follower, from the follower's fetches alone."""

from __future__ import annotations

from dataclasses import dataclass

from broker.partition.effects import UNKNOWN_BROKER_EPOCH

UNKNOWN_OFFSET = -1
NEVER = float("-inf")


class Attendance:
    """The time of the last request of one fetch session, shared by all its partitions.

    Within a session a follower names only partitions that changed. Each of its requests also proves
    that it still has everything of all the others: that is noted here, once for all of them.
    """

    __slots__ = ("last_fetch_ms",)

    def __init__(self) -> None:
        self.last_fetch_ms = NEVER


@dataclass(slots=True)
class FollowerProgress:
    """One follower as seen in the present leader epoch; a new incarnation starts afresh."""

    # The incarnation whose fetches are counted here.
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    # Whether this incarnation may join an ISR: it is neither fenced nor shutting down.
    eligible: bool = False
    # Everything below is on the follower's disk: it fetches from there only once it is durable.
    end_offset: int = UNKNOWN_OFFSET
    # The last moment at which the follower had all that the leader had, in monotonic ms. A
    # member of the ISR gets the moment of election as a grace.
    caught_up_ms: float = NEVER
    # When and against which leader end the last fetch came: the follower that now fetches from
    # that end was caught up then, however fast the leader appends. NEVER while the end is unknown.
    last_fetch_ms: float = NEVER
    last_fetch_leader_end: int = UNKNOWN_OFFSET
    # Where its log begins, on disk: records that were deleted stay deleted on it.
    start_offset: int = 0
    # The leader's wall clock when this incarnation was last seen with an empty log. Then it has
    # read no record whose tombstone was dropped before. None: it was not seen so, or a tombstone
    # was dropped since that it may have needed.
    emptied_at_ms: int | None = None
    # The session in which the follower rests: it has all that the leader has, and each request
    # of the session is a fetch from there that need not be counted here. None otherwise.
    rests_in: Attendance | None = None

    def fetched(
        self,
        *,
        broker_epoch: int,
        offset: int,
        leader_end: int,
        now_ms: float,
        start_offset: int = 0,
        attendance: Attendance | None = None,
        emptied_at_ms: int | None = None,
    ) -> None:
        """Count a fetch from ``offset`` that came when the leader's log ended at ``leader_end``.

        ``attendance``: of the session that the fetch belongs to. ``emptied_at_ms``: now, by the
        wall clock, if the follower's log is empty.
        """
        self.roused()
        if broker_epoch != self.broker_epoch or emptied_at_ms is not None:
            self.emptied_at_ms = emptied_at_ms
        if broker_epoch != self.broker_epoch or offset < self.end_offset:
            # Another incarnation, or one that lost or cut its tail: its earlier end proves nothing.
            grace_ms = self.caught_up_ms if self.end_offset == UNKNOWN_OFFSET else NEVER
            self.broker_epoch = broker_epoch
            self.caught_up_ms = grace_ms
            self.last_fetch_ms = NEVER
            self.last_fetch_leader_end = UNKNOWN_OFFSET
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.start_offset = start_offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end = leader_end
        if offset >= leader_end:
            self.rests_in = attendance

    def may_lack_tombstones(self, broker_epoch: int, offset: int, dropped_end: int) -> bool:
        """Whether the follower, which has records below ``offset``, may hold one whose tombstone
        this leader dropped at ``offset`` or later, below ``dropped_end``."""
        if offset >= dropped_end:
            return False
        return broker_epoch != self.broker_epoch or self.emptied_at_ms is None

    def tombstones_dropped(self, dropped_end: int, time_ms: int, retention_ms: int) -> None:
        """The leader drops tombstones below ``dropped_end`` at this wall-clock time.

        A tombstone is dropped ``delete.retention.ms`` after the older records of its key. So a
        follower that was empty later than these went cannot hold them. A clock that was set back
        proves nothing.
        """
        emptied_at_ms = self.emptied_at_ms
        if (
            emptied_at_ms is not None
            and self.end_offset < dropped_end
            and not 0 <= time_ms - emptied_at_ms < retention_ms
        ):
            self.emptied_at_ms = None

    def roused(self) -> None:
        """The leader's log goes on, or the session covers the partition no longer.

        The session's last request was the last fetch from where the follower rested.
        """
        attendance, self.rests_in = self.rests_in, None
        if attendance is not None:
            self.caught_up_ms = max(self.caught_up_ms, attendance.last_fetch_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, attendance.last_fetch_ms)

    def is_caught_up(self, *, leader_end: int, now_ms: float, lag_max_ms: float) -> bool:
        """Whether the follower has everything, or had it no longer than ``lag_max_ms`` ago."""
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= lag_max_ms
