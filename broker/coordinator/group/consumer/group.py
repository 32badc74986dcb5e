"""A group of the consumer protocol (KIP-848): what it makes of events of every kind of group.

Its own requests are in ``requests``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.coordinator.assignors.spec import NO_PARTITIONS
from broker.coordinator.group.consumer import classic_members
from broker.coordinator.group.consumer.classic_members import ClassicJoin
from broker.coordinator.group.consumer.heartbeat import remove
from broker.coordinator.group.consumer.state import ConsumerGroupState, ConsumerMember
from broker.coordinator.group.consumer.types import ConsumerDescribeAnswer, DescribedConsumer
from broker.coordinator.group.deadlines import Timer
from broker.coordinator.group.notes import Note
from broker.coordinator.group.types import (
    CONSUMER_PROTOCOL,
    DescribeAnswer,
    GroupState,
    GroupType,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    ListedGroup,
    OffsetCommitRequest,
    SyncRequest,
)
from broker.coordinator.step import Now, Reply, Step, Waiter
from stele.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)


class ConsumerGroup(ConsumerGroupState):
    """A ``broker.coordinator.group.group.Group``."""

    commits_keep_sessions: Final = False

    def described(self) -> DescribeAnswer:
        """To DescribeGroups, which knows classic groups only, it does not exist."""
        return DescribeAnswer(self.group_id, GroupState.DEAD)

    def described_in_full(self) -> ConsumerDescribeAnswer:
        return ConsumerDescribeAnswer(
            ErrorCode.NONE,
            self.group_id,
            self.state,
            self.epoch,
            self.assignment_epoch,
            self.assignor(),
            tuple(self._described(each) for each in self.members.values()),
        )

    def _described(self, member: ConsumerMember) -> DescribedConsumer:
        metadata = member.metadata
        return DescribedConsumer(
            member.member_id,
            metadata.instance_id,
            metadata.rack_id,
            member.current.member_epoch,
            metadata.client_id,
            metadata.client_host,
            metadata.topic_names,
            metadata.regex,
            member.current.assigned,
            self.targets.get(member.member_id, NO_PARTITIONS),
            member.uses_classic,
        )

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, CONSUMER_PROTOCOL, self.state, GroupType.CONSUMER)

    def waiters(self) -> list[Waiter]:
        return []  # every request is answered by its step

    # ------------------------------------------------------------------------- classic members

    def join(
        self,
        request: JoinRequest,
        waiter: Waiter,
        now: Now,
        step: Step,
        new_id: Callable[[str], str],
    ) -> None:
        """A client of the classic protocol joins. If the group is empty, it is removed, and the
        client joins again."""
        if self.is_empty:
            again = JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, request.member_id)
            step.records += self.tombstones()
            step.replies.append(Reply(waiter, again))
            return
        try:
            answer = ClassicJoin(self, request, now, step, new_id).decide()
        except ApiError as error:
            answer = JoinAnswer(error.code, request.member_id)
        step.replies.append(Reply(waiter, answer, self.recorded_end))

    def sync(self, request: SyncRequest, waiter: Waiter, now: Now, step: Step) -> None:
        classic_members.sync(self, request, waiter, now, step)

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter, now: Now, step: Step) -> None:
        classic_members.heartbeat(self, request, waiter, now, step)

    def leave(self, request: LeaveRequest, waiter: Waiter, now: Now, step: Step) -> None:
        classic_members.leave(self, request, waiter, now, step)

    # ------------------------------------------------------------------------- offsets

    def commit_errors(self, request: OffsetCommitRequest) -> tuple[ErrorCode, ...]:
        """Whether a client may commit each of the offsets. A client that is no member may commit
        while the group has no members. In a transaction, members are fenced only if they identify
        themselves (KIP-447).

        A member in an earlier epoch may commit partitions that it has owned since (KIP-1251).
        Example: its epoch has just risen, and it commits before it has got the new epoch.
        """
        is_free = request.generation < 0 and self.is_empty
        if is_free or (request.producer is not None and request.names_nobody):
            return (ErrorCode.NONE,) * len(request.offsets)
        error = self._epoch_error(request.member_id, request.generation)
        if error is not ErrorCode.STALE_MEMBER_EPOCH:
            return (error,) * len(request.offsets)
        current = self.members[request.member_id].current
        stale = self._stale_error(request)
        return tuple(
            ErrorCode.NONE
            if (since := current.owned_since(each.topic_id, each.partition)) is not None
            and since <= request.generation < current.member_epoch
            else stale
            for each in request.offsets
        )

    def _stale_error(self, request: OffsetCommitRequest) -> ErrorCode:
        """STALE_MEMBER_EPOCH as an error that the client knows. Producers know the errors of groups
        of the classic protocol, and so do consumers of old versions."""
        if request.producer is not None:
            return ErrorCode.ILLEGAL_GENERATION
        if not request.knows_group_id_not_found:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.STALE_MEMBER_EPOCH

    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether a client may know the offsets: a member in its epoch, or an administrator."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        return self._epoch_error(member_id or "", member_epoch)

    def _epoch_error(self, member_id: str, member_epoch: int) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.current.member_epoch:
            return ErrorCode.NONE
        is_classic = member.uses_classic
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    # ------------------------------------------------------------------------- time, notes

    def deadline_passed(self, timer: Timer, now: Now, step: Step) -> None:
        logger.info(
            "group %s: the %s time-out of %s has passed",
            self.group_id, timer.kind.value, timer.member_id,
        )  # fmt: skip
        remove(self, timer.member_id, now, step)

    def take_note(self, note: Note, now: Now) -> None:
        """No note is for a group of this kind."""
