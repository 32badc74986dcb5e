"""ConsumerGroupHeartbeat: members join, stay and leave, and come to their assignments (KIP-848)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from broker.coordinator.assignors.spec import NO_PARTITIONS
from broker.coordinator.group.consumer.draft import Draft
from broker.coordinator.group.consumer.migration import downgraded, may_be_downgraded
from broker.coordinator.group.consumer.progress import (
    Known,
    Progress,
    check_instance,
    check_room,
    taking_over,
)
from broker.coordinator.group.consumer.reconciliation import is_subset
from broker.coordinator.group.consumer.records import (
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    current_record,
)
from broker.coordinator.group.consumer.state import ConsumerGroupState, ConsumerMember
from broker.coordinator.group.consumer.types import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeatAnswer,
    ConsumerHeartbeatRequest,
)
from broker.coordinator.layout import NAME_BYTES_MAX, STRING_BYTES_MAX, is_too_long
from broker.coordinator.step import Now, Reply, Step
from stele.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)


def check(request: ConsumerHeartbeatRequest, assignors: Sequence[str]) -> None:
    """Raises ApiError INVALID_REQUEST, INVALID_GROUP_ID, UNSUPPORTED_ASSIGNOR: it means nothing."""
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if is_too_long(request.group_id, most=STRING_BYTES_MAX):
        why = f"the group id is longer than {STRING_BYTES_MAX} bytes"
        raise ApiError(ErrorCode.INVALID_GROUP_ID, why)
    for why in _mistakes(request):
        raise ApiError(ErrorCode.INVALID_REQUEST, why)
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"the assignor {assignor} is not one of {', '.join(assignors)}",
        )


def _mistakes(request: ConsumerHeartbeatRequest) -> Iterable[str]:
    epoch = request.member_epoch
    if not request.member_id and (epoch != JOIN_EPOCH or request.makes_member_id):
        yield "the member id is empty"
    names = (request.member_id, request.regex, request.instance_id, request.rack_id)
    of_client = (request.client_id, request.client_host)
    if is_too_long(*names, *of_client, *(request.topic_names or ())):
        yield f"a name is longer than {NAME_BYTES_MAX} bytes"
    if request.instance_id == "":
        yield "the instance id is empty"
    if request.rack_id == "":
        yield "the rack is empty"
    if epoch < STATIC_LEAVE_EPOCH:
        yield f"there is no member epoch {epoch}"
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        yield "only a member with an instance id can leave with epoch -2"
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms < 0:
            yield "a joining member must give its rebalance timeout"
        if request.topic_names is None and request.regex is None:
            yield "a joining member must subscribe to topics"
        if request.owned is None or request.owned:
            yield "a joining member must own no partitions"


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """One heartbeat, which was checked. Its records are added to the step."""

    group: ConsumerGroupState
    request: ConsumerHeartbeatRequest
    now: Now
    step: Step
    new_id: Callable[[], str]

    def decide(self) -> ConsumerHeartbeatAnswer:
        """Raises ApiError: the request is refused, and nothing changes."""
        if self.request.member_epoch < JOIN_EPOCH:
            return self._leave()
        known, request = self._known(), self.request
        metadata = self._updated(known.metadata)
        progress = Progress(
            self.group, known, metadata, request.owned, self.now, request.resolved_regex
        )
        if progress.has_changed:
            self.step.records += progress.draft.records
        else:
            self.group.restart_session(known.member_id, self.now)
            self.group.compared_topics = self.group.metadata.topics
        return self._answer(known, progress, metadata.regex)

    def _answer(
        self, known: Known, progress: Progress, regex: str | None
    ) -> ConsumerHeartbeatAnswer:
        request, current = self.request, progress.current
        is_full = request.rebalance_timeout_ms >= 0 and request.owned is not None
        tells_assignment = (
            is_full
            or request.member_epoch != known.current.member_epoch
            or current.assigned != known.current.assigned
        )
        return ConsumerHeartbeatAnswer(
            ErrorCode.NONE,
            None,
            known.member_id,
            current.member_epoch,
            self._next_heartbeat_ms(progress.draft),
            current.assigned if tells_assignment else None,
            regex if self._is_stale(regex) else None,
        )

    def _next_heartbeat_ms(self, draft: Draft) -> int:
        """When the member is to send the next heartbeat: also as soon as the target assignment that
        it waits for may be made."""
        group = self.group
        interval_ms = group.metadata.settings(group.group_id).heartbeat_interval_ms
        if not draft.lacks_assignment:
            return interval_ms
        return min(interval_ms, group.assignment_wait_ms(self.now))

    def _is_stale(self, regex: str | None) -> bool:
        if not regex or self.request.resolved_regex is not None:
            return False
        return self.group.is_stale(regex)

    # ------------------------------------------------------------------------- who it is

    def _known(self) -> Known:
        request, group = self.request, self.group
        is_join = request.member_epoch == JOIN_EPOCH
        member_id = request.member_id or self.new_id()
        member = group.members.get(member_id)
        if request.instance_id is not None:
            of_instance = group.of_instance(request.instance_id)
            if is_join and of_instance is not None and of_instance is not member:
                return self._taking_over(of_instance, member_id)
            if not is_join:
                check_instance(of_instance, request.instance_id, member_id)
        if member is None:
            if not is_join:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member of the group"
                )
            check_room(group)
            return Known(member_id, MemberMetadata(), CurrentAssignment())
        if not is_join:
            self._check_epoch(member.current)
        return Known(member_id, member.metadata, member.current)

    def _taking_over(self, former: ConsumerMember, member_id: str) -> Known:
        """A new process of a static member. The former one must have left, unless it uses the
        classic protocol, in which it is replaced."""
        if former.current.member_epoch != STATIC_LEAVE_EPOCH and not former.uses_classic:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"the instance id {former.metadata.instance_id} belongs to {former.member_id}",
            )
        return taking_over(former, member_id)

    def _check_epoch(self, current: CurrentAssignment) -> None:
        """A member may have the epoch before, if the answer with the newest one was lost."""
        request = self.request
        is_retry = (
            request.member_epoch == current.previous_epoch
            and request.owned is not None
            and is_subset(request.owned, current.assigned)
        )
        is_unknown = current.state is MemberState.UNKNOWN and request.owned != NO_PARTITIONS
        if (request.member_epoch != current.member_epoch and not is_retry) or is_unknown:
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"the member is in epoch {current.member_epoch}, not in {request.member_epoch}: "
                "it has to give up its partitions and join again",
            )

    def _updated(self, before: MemberMetadata) -> MemberMetadata:
        request = self.request
        names = before.topic_names
        if request.topic_names is not None:
            names = tuple(sorted(set(request.topic_names)))
        timeout_ms = request.rebalance_timeout_ms
        return MemberMetadata(
            before.instance_id if request.instance_id is None else request.instance_id,
            before.rack_id if request.rack_id is None else request.rack_id,
            request.client_id,
            request.client_host,
            names,
            before.regex if request.regex is None else request.regex or None,
            before.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
            before.server_assignor if request.server_assignor is None else request.server_assignor,
        )

    # ------------------------------------------------------------------------- leaving

    def _leave(self) -> ConsumerHeartbeatAnswer:
        request, group = self.request, self.group
        member = group.members.get(request.member_id)
        if request.instance_id is not None:
            former = group.of_instance(request.instance_id)
            check_instance(former, request.instance_id, request.member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is no member of the group"
            )
        if request.member_epoch == LEAVE_EPOCH:
            remove(group, member.member_id, self.now, self.step)
        else:
            # It has revoked all its partitions, and the next process gets those that were assigned.
            away = CurrentAssignment(
                STATIC_LEAVE_EPOCH, STATIC_LEAVE_EPOCH, MemberState.STABLE, member.current.assigned
            )
            self.step.records.append(current_record(group.group_id, member.member_id, away))
        return ConsumerHeartbeatAnswer(
            ErrorCode.NONE, None, request.member_id, request.member_epoch
        )


def remove(group: ConsumerGroupState, member_id: str, now: Now, step: Step) -> None:
    """Remove a member. A later heartbeat of another one makes the new assignment. If all others
    use the classic protocol, the group does so, too."""
    draft = Draft(group)
    draft.remove_member(member_id)
    if group.is_last_consumer(member_id) and may_be_downgraded(group, len(draft.metadata)):
        step.records += downgraded(group, draft, now)
        step.instead = lambda: _removed_only(group, draft, step.replies)
        return
    draft.raise_epoch()
    step.records += draft.records


def _removed_only(group: ConsumerGroupState, draft: Draft, replies: list[Reply]) -> Step:
    """The group stays with the consumer protocol, which serves its classic members, too: no record
    can hold their metadata in the classic protocol."""
    logger.warning(
        "group %s keeps the consumer protocol, since no batch can hold the record of its classic "
        "members: raise max.message.bytes of __consumer_offsets to let it change its protocol",
        group.group_id,
    )
    draft.raise_epoch()
    return Step(draft.records, replies)


def resolve(group: ConsumerGroupState, regex: str, resolved: ResolvedRegex, step: Step) -> None:
    """Note which topics a regular expression stands for by now."""
    draft = Draft(group)
    draft.set_regex(regex, resolved)
    draft.raise_epoch()
    step.records += draft.records
    if not step.records:
        group.resolved_versions[regex] = resolved.version
