"""A member of a share group, without network and time (KIP-932).

The coordinator assigns partitions, several members may have the same one, and nobody has to give
one up first. So an assignment is replaced at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stele.errors import ErrorCode
from stele.ids import PartitionId

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

REMOVED: Final = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
)
"""Errors after which the member joins again."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """``topics`` None: they are as the coordinator knows them."""

    member_id: str
    member_epoch: int
    topics: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ShareHeartbeatAnswer:
    error: ErrorCode
    message: str = ""
    member_epoch: int = 0
    interval_ms: int = 0
    assigned: frozenset[PartitionId] | None = None  # None: as in the answer before


class ShareMembership:
    """``member_id`` is made by the client, and is its own for its life."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.topics: frozenset[str] = frozenset()
        self.assigned: frozenset[PartitionId] = frozenset()
        # What the coordinator knows; None if that is not certain.
        self._known_topics: frozenset[str] | None = None

    @property
    def is_member(self) -> bool:
        return self.epoch > JOIN_EPOCH

    @property
    def has_news(self) -> bool:
        """Whether the coordinator should hear of a change at once."""
        return self._known_topics != self.topics

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)

    def heartbeat(self) -> ShareHeartbeat:
        topics = None if self._known_topics == self.topics else self.topics
        return ShareHeartbeat(self.member_id, self.epoch, topics)

    def on_answer(self, asked: ShareHeartbeat, answer: ShareHeartbeatAnswer) -> None:
        if asked.member_epoch != self.epoch:
            return  # the member has left or joined anew meanwhile
        if answer.error is not ErrorCode.NONE:
            self.on_lost()
            if answer.error in REMOVED:
                self._drop_out()
            return
        self.epoch = answer.member_epoch
        if asked.topics is not None:
            self._known_topics = asked.topics
        if answer.assigned is not None:
            self.assigned = answer.assigned

    def on_lost(self) -> None:
        """No answer came. The next heartbeat says everything."""
        self._known_topics = None

    def begin_anew(self) -> None:
        """The member was refused, and has no partitions. The next heartbeat joins."""
        self._drop_out()

    def leave(self) -> ShareHeartbeat | None:
        """The membership ends. Returns the heartbeat with which the member leaves, or None if the
        coordinator does not know it."""
        was_member = self.is_member
        self._drop_out()
        return ShareHeartbeat(self.member_id, LEAVE_EPOCH) if was_member else None

    def _drop_out(self) -> None:
        self.epoch = JOIN_EPOCH
        self.assigned = frozenset()
        self._known_topics = None
