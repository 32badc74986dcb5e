"""The deadlines of all groups of a partition."""

from __future__ import annotations

import enum

from broker.coordinator.deadlines import Deadline, DeadlineHeap


class TimerKind(enum.Enum):
    """The purpose of a deadline."""

    SESSION = "session"  # the next heartbeat of a member
    JOIN = "join"  # the time in which members join the next generation
    SYNC = "sync"  # the time in which members fetch their assignments
    REBALANCE = "rebalance"  # the time in which a member revokes partitions, or joins and syncs
    EXPIRY = "expiry"  # the next check for expired offsets
    DELETED_TOPICS = "deleted topics"  # offsets of deleted topics have to be removed


class Timer(Deadline):
    """A deadline of a group, of a member, or of the whole machine."""

    __slots__ = ("group_id", "kind", "member_id")

    def __init__(
        self, deadlines: Deadlines, kind: TimerKind, group_id: str = "", member_id: str = ""
    ) -> None:
        super().__init__(deadlines)
        self.kind = kind
        self.group_id = group_id
        self.member_id = member_id

    def __str__(self) -> str:
        member = f" of member {self.member_id!r}" if self.member_id else ""
        group = f" in group {self.group_id!r}" if self.group_id else ""
        return f"what follows from the deadline {self.kind.value!r}{member}{group}"


class Deadlines(DeadlineHeap[Timer]):
    """Heartbeats often move deadlines, so most entries of the heap are out of date."""

    __slots__ = ()
