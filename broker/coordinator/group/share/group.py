"""A share group (KIP-932): what it makes of events of every kind of group.

Its own requests are in ``requests``. A share group has no offsets, and its members no generations:
requests of the other protocols are refused, with errors that their clients know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.coordinator.group.deadlines import Timer
from broker.coordinator.group.notes import Note
from broker.coordinator.group.share.heartbeat import remove
from broker.coordinator.group.share.state import ShareGroupState, ShareMember
from broker.coordinator.group.share.types import (
    ASSIGNOR,
    DescribedShareMember,
    ShareDescribeAnswer,
)
from broker.coordinator.group.types import (
    DescribeAnswer,
    GroupState,
    GroupType,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    ListedGroup,
    OffsetCommitRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.step import Now, Reply, Step, Waiter
from stele.errors import ErrorCode

logger = logging.getLogger(__name__)

SHARE_PROTOCOL: Final = "share"
"""The protocol type of share groups in lists of groups."""


class ShareGroup(ShareGroupState):
    """A ``broker.coordinator.group.group.Group``."""

    commits_keep_sessions: Final = False
    has_consumers: Final = False
    is_used: Final = True  # it is never removed for being empty: its state says what was delivered
    may_be_replaced: Final = False  # else that state would be lost

    def described(self) -> DescribeAnswer:
        """To DescribeGroups, which knows classic groups only, it does not exist."""
        return DescribeAnswer(self.group_id, GroupState.DEAD)

    def described_in_full(self) -> ShareDescribeAnswer:
        return ShareDescribeAnswer(
            ErrorCode.NONE,
            self.group_id,
            self.state,
            self.epoch,
            self.target_epoch.epoch,
            ASSIGNOR,
            tuple(map(_described, self.members.values())),
        )

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, SHARE_PROTOCOL, self.state, GroupType.SHARE)

    def waiters(self) -> list[Waiter]:
        return []  # every request is answered by its step

    # ------------------------------------------------------------------------- other protocols

    def join(
        self,
        request: JoinRequest,
        waiter: Waiter,
        now: Now,
        step: Step,
        new_id: Callable[[str], str],
    ) -> None:
        answer = JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        step.replies.append(Reply(waiter, answer, self.recorded_end))

    def sync(self, request: SyncRequest, waiter: Waiter, now: Now, step: Step) -> None:
        answer = SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
        step.replies.append(Reply(waiter, answer, self.recorded_end))

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter, now: Now, step: Step) -> None:
        step.replies.append(Reply(waiter, ErrorCode.UNKNOWN_MEMBER_ID, self.recorded_end))

    def leave(self, request: LeaveRequest, waiter: Waiter, now: Now, step: Step) -> None:
        errors = (ErrorCode.UNKNOWN_MEMBER_ID,) * len(request.members)
        step.replies.append(Reply(waiter, LeaveAnswer(ErrorCode.NONE, errors), self.recorded_end))

    def commit_errors(self, request: OffsetCommitRequest) -> tuple[ErrorCode, ...]:
        return (ErrorCode.GROUP_ID_NOT_FOUND,) * len(request.offsets)

    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    # ------------------------------------------------------------------------- time, notes

    def deadline_passed(self, timer: Timer, now: Now, step: Step) -> None:
        logger.info(
            "share group %s: the session of member %s has ended without a heartbeat",
            self.group_id, timer.member_id,
        )  # fmt: skip
        remove(self, timer.member_id, step)

    def take_note(self, note: Note, now: Now) -> None:
        """No note is for a group of this kind."""


def _described(member: ShareMember) -> DescribedShareMember:
    metadata = member.metadata
    return DescribedShareMember(
        member.member_id,
        metadata.rack_id,
        member.current.member_epoch,
        metadata.client_id,
        metadata.client_host,
        metadata.topic_names,
        member.current.assigned,
    )
