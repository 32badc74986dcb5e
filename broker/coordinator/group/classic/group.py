"""A group of the classic protocol: what becomes of JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.coordinator.group.classic.generations import REASON_MAX, Generations
from broker.coordinator.group.classic.joining import Joining
from broker.coordinator.group.classic.member import Member
from broker.coordinator.group.deadlines import Timer, TimerKind
from broker.coordinator.group.notes import Committer, Note, Successor
from broker.coordinator.group.types import (
    UNKNOWN_MEMBER,
    DescribeAnswer,
    GroupState,
    GroupType,
    HeartbeatRequest,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    LeavingMember,
    ListedGroup,
    OffsetCommitRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.step import Now, Reply, Step, Waiter
from stele.errors import ErrorCode

logger = logging.getLogger(__name__)

_LEAVING_TOLD: Final = 5
"""Members that the log names when many leave at once."""


class ClassicGroup(Generations):
    """A ``broker.coordinator.group.group.Group``."""

    commits_keep_sessions: Final = True

    def described(self) -> DescribeAnswer:
        protocol = self.protocol if self.state is GroupState.STABLE else None
        return DescribeAnswer(
            self.group_id,
            self.state,
            self.protocol_type,
            protocol or "",
            tuple(each.described(protocol) for each in self.members),
        )

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type, self.state, GroupType.CLASSIC)

    # ------------------------------------------------------------------------- joining

    def join(
        self,
        request: JoinRequest,
        waiter: Waiter,
        now: Now,
        step: Step,
        new_id: Callable[[str], str],
    ) -> None:
        Joining(self, request, waiter, now, step, new_id).decide()

    # ------------------------------------------------------------------------- assigning

    def sync(self, request: SyncRequest, waiter: Waiter, now: Now, step: Step) -> None:
        error = self._sync_error(request)
        if error is not ErrorCode.NONE:
            self.say(step, waiter, SyncAnswer(error))
            return
        member = self.members[request.member_id]
        if self.state is GroupState.STABLE:
            self._has_synced(member)
            self.say(step, waiter, self._assigned(member.assignment))
        elif self.leader == member.member_id:
            self._assign(request.assignments, waiter, now, step)
        else:
            replaced = SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
            self.tell(member.sync_waiter, replaced, step)
            member.sync_waiter = waiter
            self._has_synced(member)

    def _sync_error(self, request: SyncRequest) -> ErrorCode:
        error = self.members.check(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if _differ(request.protocol_type, self.protocol_type) or _differ(
            request.protocol, self.protocol
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assign(
        self, assignments: Mapping[str, bytes], waiter: Waiter, now: Now, step: Step
    ) -> None:
        """Record the leader's assignment, and answer the members that wait for it."""
        record = self.record(self.members, self.leader, self.generation, now, assignments)
        step.records.append(record)
        step.instead = lambda: self._assignment_refused(waiter, now)
        for member in self.members:
            told = waiter if member.member_id == self.leader else member.sync_waiter
            if told is not None:
                assignment = assignments.get(member.member_id, b"")
                step.replies.append(Reply(told, self._assigned(assignment)))

    def _assignment_refused(self, waiter: Waiter, now: Now) -> Step:
        """No record can hold the leader's assignment. The leader and all waiting members get an
        error and join again, as in Kafka."""
        step = Step()
        error = SyncAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
        self.say(step, waiter, error)
        for member in self.members:
            self.tell(member.sync_waiter, error, step)
            member.sync_waiter = None
            member.restart_session(now.monotonic_ms)
        self._prepare_rebalance("no record can hold the assignment", now, step)
        return step

    def _assigned(self, assignment: bytes) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol, assignment)

    def _has_synced(self, member: Member) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._sync_timer.cancel()

    def sync_time_is_over(self, now: Now, step: Step) -> None:
        """Members that have not fetched their assignments in time are removed."""
        late = [each for each in self.members if each.member_id in self._unsynced]
        self._remove(late, "members have not fetched their assignments in time", now, step)

    # ------------------------------------------------------------------------- staying

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter, now: Now, step: Step) -> None:
        error = self.members.check(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE:
            if request.generation != self.generation:
                error = ErrorCode.ILLEGAL_GENERATION
            else:
                self.members[request.member_id].restart_session(now.monotonic_ms)
                if self.state is GroupState.PREPARING_REBALANCE:
                    error = ErrorCode.REBALANCE_IN_PROGRESS
        self.say(step, waiter, error)

    def has_committed(self, member_id: str, now: Now) -> None:
        """As in Kafka, a commit keeps the session of a member as a heartbeat does."""
        member = self.members.get(member_id)
        if member is not None:
            member.restart_session(now.monotonic_ms)

    def session_is_over(self, member_id: str, now: Now, step: Step) -> None:
        """A member has not sent a heartbeat in time, or has not joined with the id that it got."""
        if member_id in self.pending:
            self.forget_pending(member_id)
            self.maybe_complete_join(now, step)
            return
        member = self.members[member_id]
        if member.is_alive:
            member.session.cancel()
        else:
            self._remove([member], f"the session of {member_id} is over", now, step)

    def commit_errors(self, request: OffsetCommitRequest) -> tuple[ErrorCode, ...]:
        """Whether a client may commit each of the offsets. A client that is no member may commit
        while the group has no members. In a transaction, members are fenced only if they identify
        themselves (KIP-447)."""
        return (self._commit_error(request),) * len(request.offsets)

    def _commit_error(self, request: OffsetCommitRequest) -> ErrorCode:
        member_id, group_instance_id = request.member_id, request.group_instance_id
        generation = request.generation
        if generation < 0 and self.is_empty:
            return ErrorCode.NONE
        is_transactional = request.producer is not None
        if request.names_nobody:
            return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.members.check(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            # The member has no partitions in this generation yet.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Everybody may know the offsets."""
        return ErrorCode.NONE

    # ------------------------------------------------------------------------- leaving

    def leave(self, request: LeaveRequest, waiter: Waiter, now: Now, step: Step) -> None:
        errors = []
        leaving: dict[str, Member] = {}
        for each in request.members:
            error, member = self._find_leaving(each, leaving)
            errors.append(error)
            if member is not None:
                leaving[member.member_id] = member
        self.say(step, waiter, LeaveAnswer(ErrorCode.NONE, tuple(errors)))
        if leaving:
            reasons = ", ".join(
                f"{each.member_id or each.group_instance_id} ({each.reason[:REASON_MAX]})"
                for each in request.members[:_LEAVING_TOLD]
            )
            self._remove(list(leaving.values()), f"leaving: {reasons}", now, step)
        if not step.records:  # else only the replay changes the group; pending ids time out
            for each in request.members:
                self.forget_pending(each.member_id)
            self.maybe_complete_join(now, step)

    def _find_leaving(
        self, asked: LeavingMember, leaving: Mapping[str, Member]
    ) -> tuple[ErrorCode, Member | None]:
        """The error for one of the request's members, and the member, if it is not pending."""
        if asked.member_id in self.pending:
            return ErrorCode.NONE, None
        if asked.member_id == UNKNOWN_MEMBER:
            member = self.members.of_instance(asked.group_instance_id)
            error = ErrorCode.NONE if member is not None else ErrorCode.UNKNOWN_MEMBER_ID
        else:
            error = self.members.check(asked.member_id, asked.group_instance_id)
            member = self.members.get(asked.member_id) if error is ErrorCode.NONE else None
        if member is not None and member.member_id in leaving:
            return ErrorCode.UNKNOWN_MEMBER_ID, None
        return error, member

    def _remove(self, leaving: Sequence[Member], reason: str, now: Now, step: Step) -> None:
        if len(leaving) == len(self.members) and not self._is_first_rebalance:
            self._become_empty(now, step)
            return
        for member in leaving:
            self._dismiss(member, step)
            self.forget(member)
        self.rebalance_or_complete(reason, now, step)

    # ------------------------------------------------------------------------- time, notes

    def deadline_passed(self, timer: Timer, now: Now, step: Step) -> None:
        if timer.kind is TimerKind.SESSION:
            self.session_is_over(timer.member_id, now, step)
        elif timer.kind is TimerKind.JOIN:
            self.join_time_is_over(now, step)
        else:
            self.sync_time_is_over(now, step)

    def take_note(self, note: Note, now: Now) -> None:
        match note:
            case Successor():
                self.members[note.member_id].protocols = note.protocols
            case Committer():
                self.has_committed(note.member_id, now)


def _differ(asked: str | None, actual: str | None) -> bool:
    """Older clients do not send what is asked."""
    return asked is not None and actual is not None and asked != actual
