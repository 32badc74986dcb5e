"""ShareGroupHeartbeat: members join, stay and leave, and learn their assignments (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.coordinator.group.share.draft import ShareDraft
from broker.coordinator.group.share.records import (
    ShareAssignment,
    ShareMemberMetadata,
    share_current_record,
)
from broker.coordinator.group.share.state import ShareGroupState
from broker.coordinator.group.share.types import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Initialization,
    ShareHeartbeatAnswer,
    ShareHeartbeatRequest,
)
from broker.coordinator.layout import NAME_BYTES_MAX, STRING_BYTES_MAX, is_too_long
from broker.coordinator.step import Now, Step
from stele.errors import ApiError, ErrorCode

INITIALIZING_HEARTBEAT_MS: Final = 500
"""When a member comes back while partitions are being initialized. Otherwise the first members of a
group would wait a whole heartbeat interval for their first partitions."""


def check(request: ShareHeartbeatRequest) -> None:
    """Raises ApiError INVALID_REQUEST, INVALID_GROUP_ID: it means nothing."""
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if is_too_long(request.group_id, most=STRING_BYTES_MAX):
        why = f"the group id is longer than {STRING_BYTES_MAX} bytes"
        raise ApiError(ErrorCode.INVALID_GROUP_ID, why)
    for why in _mistakes(request):
        raise ApiError(ErrorCode.INVALID_REQUEST, why)


def _mistakes(request: ShareHeartbeatRequest) -> Iterable[str]:
    epoch = request.member_epoch
    if not request.member_id:
        yield "the member id is empty"
    names = (request.member_id, request.rack_id, request.client_id, request.client_host)
    if is_too_long(*names, *(request.topic_names or ())):
        yield f"a name is longer than {NAME_BYTES_MAX} bytes"
    if request.rack_id == "":
        yield "the rack is empty"
    if epoch < LEAVE_EPOCH:
        yield f"there is no member epoch {epoch}"
    if epoch == JOIN_EPOCH and not request.topic_names:
        yield "a joining member must subscribe to topics"


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """One heartbeat, which was checked. Its records are added to the step."""

    group: ShareGroupState
    request: ShareHeartbeatRequest
    now: Now
    step: Step

    def decide(self) -> ShareHeartbeatAnswer:
        """Raises ApiError: the request is refused, and nothing changes."""
        request, group = self.request, self.group
        member_id = request.member_id
        if request.member_epoch == LEAVE_EPOCH:
            self._check_member()
            remove(group, member_id, self.step)
            return ShareHeartbeatAnswer(ErrorCode.NONE, None, member_id, LEAVE_EPOCH)
        before = self._known()
        draft = ShareDraft(group)
        draft.set_member(member_id, self._updated())
        draft.raise_epoch()
        draft.assign(self.now)
        current = advanced(before, draft, member_id)
        answer = self._answer(before, current, draft)
        if draft.records or current != before:
            # The replay of the member's record restarts its session.
            self.step.records += draft.records
            self.step.records.append(share_current_record(group.group_id, member_id, current))
        else:
            group.restart_session(member_id, self.now)
            group.compared_topics = group.metadata.topics
            if answer.to_initialize is not None:
                group.initialization_begun(self.now)
        return answer

    def _answer(
        self, before: ShareAssignment, current: ShareAssignment, draft: ShareDraft
    ) -> ShareHeartbeatAnswer:
        request = self.request
        tells_assignment = (
            request.topic_names is not None
            or request.member_epoch != current.member_epoch
            or current.assigned != before.assigned
        )
        to_initialize = None
        is_new = draft.state_partitions is not self.group.state_partitions
        if draft.initializing and (is_new or self.group.may_initialize(self.now)):
            to_initialize = Initialization(draft.epoch, draft.initializing)
        return ShareHeartbeatAnswer(
            ErrorCode.NONE,
            None,
            request.member_id,
            current.member_epoch,
            self._next_heartbeat_ms(draft),
            current.assigned if tells_assignment else None,
            to_initialize,
        )

    def _next_heartbeat_ms(self, draft: ShareDraft) -> int:
        """When the member is to send the next heartbeat: also as soon as it may get partitions."""
        interval_ms = self.group.settings.heartbeat_interval_ms
        if draft.initializing:
            return min(interval_ms, INITIALIZING_HEARTBEAT_MS)
        if draft.lacks_assignment:
            return min(interval_ms, self.group.assignment_wait_ms(self.now))
        return interval_ms

    # ------------------------------------------------------------------------- who it is

    def _check_member(self) -> None:
        if self.request.member_id not in self.group.members:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{self.request.member_id} is no member of the group"
            )

    def _known(self) -> ShareAssignment:
        """What the member had before."""
        request, group = self.request, self.group
        member = group.members.get(request.member_id)
        if request.member_epoch == JOIN_EPOCH:
            most = group.settings.max_size
            if member is None and len(group.members) >= most:
                raise ApiError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"the share group has {most} members, the maximum (group.share.max.size)",
                )
            return ShareAssignment() if member is None else member.current
        self._check_member()
        current = group.members[request.member_id].current
        # A member may have the epoch before, if the answer with the newest one was lost.
        if request.member_epoch not in (current.member_epoch, current.previous_epoch):
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"the member is in epoch {current.member_epoch}, not in {request.member_epoch}: "
                "it has to join again",
            )
        return current

    def _updated(self) -> ShareMemberMetadata:
        request = self.request
        member = self.group.members.get(request.member_id)
        before = ShareMemberMetadata() if member is None else member.metadata
        names = before.topic_names
        if request.topic_names is not None:
            names = tuple(sorted(set(request.topic_names)))
        return ShareMemberMetadata(
            before.rack_id if request.rack_id is None else request.rack_id,
            request.client_id,
            request.client_host,
            names,
        )


def advanced(before: ShareAssignment, draft: ShareDraft, member_id: str) -> ShareAssignment:
    """The next assignment of a member: its part of the target at once."""
    epoch, target = draft.target_epoch.epoch, draft.target_of(member_id)
    if before.member_epoch == epoch and before.assigned == target:
        return before
    return ShareAssignment(epoch, before.member_epoch, target)


def remove(group: ShareGroupState, member_id: str, step: Step) -> None:
    """Remove a member. A later heartbeat of another one makes the new assignment."""
    draft = ShareDraft(group)
    draft.remove_member(member_id)
    draft.raise_epoch()
    step.records += draft.records
