"""Members of the classic protocol in a group of the consumer protocol (KIP-848, live migration).

Their generation is their member epoch. The coordinator assigns, so no member becomes the leader. A
member must join again for the target assignment of a later epoch, when it has to revoke partitions,
and when partitions that it waited for are free. This also works for clients that revoke everything
before they join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.coordinator.group.consumer.draft import Draft
from broker.coordinator.group.consumer.migration import (
    assignment_bytes,
    by_id,
    classic_metadata,
    downgraded,
    may_be_downgraded,
    subscription_of,
)
from broker.coordinator.group.consumer.progress import (
    Known,
    Progress,
    check_instance,
    check_room,
    taking_over,
)
from broker.coordinator.group.consumer.records import (
    ClassicMember,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
)
from broker.coordinator.group.consumer.state import ConsumerGroupState, ConsumerMember
from broker.coordinator.group.types import (
    CONSUMER_PROTOCOL,
    UNKNOWN_MEMBER,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.step import Now, Reply, Step, Waiter
from stele.errors import ApiError, ErrorCode
from stele.wire.consumer_protocol import ConsumerProtocolError, Subscription

# ------------------------------------------------------------------------------- JoinGroup


@dataclass(frozen=True, slots=True)
class ClassicJoin:
    """One JoinGroup request to a group that has members. Its records are added to the step."""

    group: ConsumerGroupState
    request: JoinRequest
    now: Now
    step: Step
    new_id: Callable[[str], str]

    def decide(self) -> JoinAnswer:
        """Raises ApiError: the request is refused, and nothing changes."""
        group, request = self.group, self.request
        if not group.supports(request.protocol_type, request.protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_new = request.member_id == UNKNOWN_MEMBER
        is_dynamic = request.group_instance_id is None
        known = self._known(self._member_id())
        if is_new and is_dynamic and request.requires_known_member_id:
            return JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, known.member_id)
        told = self._subscription()
        owned = by_id(told.owned, group.metadata.topics)
        progress = Progress(group, known, self._metadata(known, told), owned, self.now)
        if self._is_last_replaced(known) and may_be_downgraded(group, len(group.members)):
            self.step.records += downgraded(group, progress.draft, self.now)
            return self._answer(known.member_id, group.epoch)
        if progress.has_changed:
            self.step.records += progress.draft.records
        else:
            group.restart_session(known.member_id, self.now)
            group.compared_topics = group.metadata.topics
        return self._answer(known.member_id, progress.current.member_epoch)

    def _member_id(self) -> str:
        request = self.request
        return request.member_id or self.new_id(request.group_instance_id or request.client_id)

    def _known(self, member_id: str) -> Known:
        group, request = self.group, self.request
        member = group.members.get(member_id)
        if request.group_instance_id is not None:
            former = group.of_instance(request.group_instance_id)
            if request.member_id != UNKNOWN_MEMBER:
                check_instance(former, request.group_instance_id, member_id)
            elif former is not None:
                return taking_over(former, member_id)
        if member is None:
            check_room(group)
            return Known(member_id, MemberMetadata(), CurrentAssignment())
        return Known(member_id, member.metadata, member.current)

    def _subscription(self) -> Subscription:
        try:
            return subscription_of(self.request.protocols[0].metadata)
        except ConsumerProtocolError as error:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None

    def _metadata(self, known: Known, told: Subscription) -> MemberMetadata:
        request = self.request
        return classic_metadata(
            told,
            MemberMetadata(
                instance_id=request.group_instance_id or known.metadata.instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
            ),
            ClassicMember(request.session_timeout_ms, request.protocols),
        )

    def _is_last_replaced(self, known: Known) -> bool:
        """Whether it takes over from the last member of the consumer protocol."""
        group, former_id = self.group, known.former_id
        if former_id is None or group.members[former_id].uses_classic:
            return False
        others = (each for each in group.members.values() if each.member_id != former_id)
        return all(each.uses_classic for each in others)

    def _answer(self, member_id: str, generation: int) -> JoinAnswer:
        return JoinAnswer(
            ErrorCode.NONE,
            member_id,
            generation,
            CONSUMER_PROTOCOL,
            self.request.protocols[0].name,
        )


# ------------------------------------------------------------------------------- staying


def sync(
    group: ConsumerGroupState, request: SyncRequest, waiter: Waiter, now: Now, step: Step
) -> None:
    """Answer a member with its assignment."""
    try:
        answer = _synced(group, request, now)
    except ApiError as error:
        answer = SyncAnswer(error.code)
    step.replies.append(Reply(waiter, answer, group.recorded_end))


def _synced(group: ConsumerGroupState, request: SyncRequest, now: Now) -> SyncAnswer:
    member = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation)
    assert member.metadata.classic is not None
    first = member.metadata.classic.protocols[0]
    is_other_type = request.protocol_type not in (None, CONSUMER_PROTOCOL)
    if is_other_type or request.protocol not in (None, first.name):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    current = member.current
    if _is_behind(group, member, now) and not _is_revoking(member):
        group.await_join(member, now)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    if not _is_revoking(member):
        member.rebalance.cancel()
    group.restart_session(member.member_id, now)
    assignment = assignment_bytes(current.assigned, group.metadata.topics, first.metadata)
    return SyncAnswer(ErrorCode.NONE, CONSUMER_PROTOCOL, first.name, assignment)


def heartbeat(
    group: ConsumerGroupState, request: HeartbeatRequest, waiter: Waiter, now: Now, step: Step
) -> None:
    """Answer a member whether it must join again. Its heartbeat also notices changed topics, since
    no member leads that would look for them."""
    error = ErrorCode.NONE
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation)
    except ApiError as refused:
        error = refused.code
    else:
        if group.compared_topics is not group.metadata.topics:
            draft = Draft(group)
            draft.raise_epoch()
            step.records += draft.records
        if step.records:  # only they may change the group; the next heartbeat goes on
            if not group.assignment_wait_ms(now):
                error = ErrorCode.REBALANCE_IN_PROGRESS
        else:
            group.compared_topics = group.metadata.topics
            group.restart_session(member.member_id, now)
            if _has_to_join(group, member, now):
                group.await_join(member, now)
                error = ErrorCode.REBALANCE_IN_PROGRESS
    step.replies.append(Reply(waiter, error, group.recorded_end))


def _has_to_join(group: ConsumerGroupState, member: ConsumerMember, now: Now) -> bool:
    current = member.current
    if _is_behind(group, member, now) or _is_revoking(member):
        return True
    return current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits(member)


def _is_behind(group: ConsumerGroupState, member: ConsumerMember, now: Now) -> bool:
    """Whether there is a target assignment of a later epoch, or its JoinGroup makes it."""
    epoch = group.assignment_epoch if group.assignment_wait_ms(now) else group.epoch
    return member.current.member_epoch < epoch


def _is_revoking(member: ConsumerMember) -> bool:
    return member.current.state is MemberState.UNREVOKED_PARTITIONS


# ------------------------------------------------------------------------------- LeaveGroup


def leave(
    group: ConsumerGroupState, request: LeaveRequest, waiter: Waiter, now: Now, step: Step
) -> None:
    draft = Draft(group)
    errors = []
    for each in request.members:
        try:
            member_id = _leaving(group, draft, each)
        except ApiError as error:
            errors.append(error.code)
        else:
            draft.remove_member(member_id)
            errors.append(ErrorCode.NONE)
    if draft.has_changed:
        draft.raise_epoch()
        step.records += draft.records
    answer = LeaveAnswer(ErrorCode.NONE, tuple(errors))
    step.replies.append(Reply(waiter, answer, group.recorded_end))


def _leaving(group: ConsumerGroupState, draft: Draft, asked: LeavingMember) -> str:
    """An administrator may name a member by its instance id alone."""
    member_id = asked.member_id
    if member_id == UNKNOWN_MEMBER and asked.group_instance_id is not None:
        of_instance = group.of_instance(asked.group_instance_id)
        member_id = "" if of_instance is None else of_instance.member_id
    _classic_member(group, member_id, asked.group_instance_id)
    if draft.metadata_of(member_id) is None:  # it was named before
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member_id


# ------------------------------------------------------------------------------- who it is


def _classic_member(
    group: ConsumerGroupState, member_id: str, group_instance_id: str | None
) -> ConsumerMember:
    """Raises ApiError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if group_instance_id is not None:
        check_instance(group.of_instance(group_instance_id), group_instance_id, member_id)
    member = group.members.get(member_id)
    if member is None or not member.uses_classic:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.current.member_epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
