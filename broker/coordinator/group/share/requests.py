"""The requests that only share groups know, and the records of share groups."""

from __future__ import annotations

from broker.coordinator.group.consumer.types import Metadata
from broker.coordinator.group.group import Group
from broker.coordinator.group.notes import DeletionEnd, NotedRecord, PartialDeletion
from broker.coordinator.group.parts import GroupParts
from broker.coordinator.group.share.draft import ShareDraft
from broker.coordinator.group.share.group import ShareGroup
from broker.coordinator.group.share.heartbeat import ShareHeartbeat, check
from broker.coordinator.group.share.records import ShareKey, ShareKind
from broker.coordinator.group.share.types import (
    JOIN_EPOCH,
    InitializedRequest,
    NewStatesAnswer,
    NewStatesRequest,
    ShareDeletionAnswer,
    ShareDeletionRequest,
    ShareDescribeAnswer,
    ShareDescribeRequest,
    ShareHeartbeatAnswer,
    ShareHeartbeatRequest,
    SharePartitionsAnswer,
    SharePartitionsRequest,
    StatesDeletedRequest,
    StatesDeletionRequest,
)
from broker.coordinator.step import Decisions, Now, Reply, Step, Waiter, told
from stele.errors import ApiError, ErrorCode


class ShareRequests:
    """What members of share groups and administrators ask."""

    def __init__(self, parts: GroupParts, metadata: Metadata) -> None:
        self._groups, self._deadlines = parts.groups, parts.deadlines
        self._metadata = metadata

    @property
    def decisions(self) -> Decisions:
        return {
            ShareHeartbeatRequest: self._heartbeat,
            ShareDescribeRequest: self._describe,
            InitializedRequest: self._initialized,
            ShareDeletionRequest: self._delete,
            StatesDeletionRequest: self._delete_states,
            StatesDeletedRequest: self._states_deleted,
            NewStatesRequest: self._begin_states_anew,
            SharePartitionsRequest: self._partitions,
        }

    # ------------------------------------------------------------------------- records

    def replay(self, offset: int, key: ShareKey, value: bytes | None, now: Now) -> None:
        group = self._groups.find(key.group_id, ShareGroup)
        if group is None:
            if value is None:
                self._groups.tombstone_read(offset + 1)
                return
            group = self._groups.put(self._make(key.group_id))
        group.replay(key, value, offset + 1, now)
        if key.kind is ShareKind.GROUP and value is None:
            self._groups.drop(key.group_id)
            self._groups.tombstone_read(offset + 1)

    def _make(self, group_id: str) -> ShareGroup:
        group = ShareGroup(group_id, self._deadlines, self._metadata)
        group.is_loaded = self._groups.is_loaded
        return group

    # ------------------------------------------------------------------------- requests

    def _heartbeat(self, request: ShareHeartbeatRequest, waiter: Waiter, now: Now) -> Step:
        step = Step()
        former = self._groups.get(request.group_id)
        try:
            if self._groups.is_being_deleted(request.group_id, now):
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group is being deleted: try again"
                )
            check(request)
            group = self._group_of(request, former)
            answer = ShareHeartbeat(group, request, now, step).decide()
        except ApiError as error:
            answer = ShareHeartbeatAnswer(error.code, error.message)
            step = Step()
        step.replies.append(Reply(waiter, answer, self._groups.end_of(former)))
        return step

    def _group_of(self, request: ShareHeartbeatRequest, former: Group | None) -> ShareGroup:
        """The group of a heartbeat. Its first member makes it. Raises ApiError."""
        if isinstance(former, ShareGroup):
            return former
        if former is not None:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"{request.group_id} is a {former.listed().group_type.value} group: "
                "choose another group id for a share group",
            )
        if request.member_epoch > JOIN_EPOCH:
            # The group was deleted while its member was silent. The member has to join again.
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "there is no such share group any more")
        if request.member_epoch < JOIN_EPOCH:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such share group")
        return self._make(request.group_id)

    def _describe(self, request: ShareDescribeRequest, waiter: Waiter, now: Now) -> Step:
        group = self._groups.find(request.group_id, ShareGroup)
        if group is not None:
            return told(waiter, group.described_in_full(), group.recorded_end)
        answer = ShareDescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, request.group_id)
        return self._groups.not_found(waiter, answer)

    def _initialized(self, request: InitializedRequest, waiter: Waiter, now: Now) -> Step:
        """A group that was deleted meanwhile needs no state any more."""
        step = told(waiter, None)
        group = self._groups.find(request.group_id, ShareGroup)
        if group is not None:
            draft = ShareDraft(group)
            draft.initialized(request.partitions)
            draft.raise_epoch()
            step.records += draft.records
        return step

    def _states_deleted(self, request: StatesDeletedRequest, waiter: Waiter, now: Now) -> Step:
        step = told(waiter, None)
        group = self._groups.find(request.group_id, ShareGroup)
        if group is None:
            return step
        draft = ShareDraft(group)
        draft.states_deleted(request.topic_ids)
        step.records += draft.records
        if request.over is not None:
            if draft.records:
                step.records[-1] = NotedRecord.of(step.records[-1], DeletionEnd(request.over))
            else:
                self._groups.deletion_ended(group.group_id, request.over)
        return step

    # ------------------------------------------------------------------------- administration

    def _partitions(self, request: SharePartitionsRequest, waiter: Waiter, now: Now) -> Step:
        group = self._groups.find(request.group_id, ShareGroup)
        if group is None:
            answer = SharePartitionsAnswer(ErrorCode.GROUP_ID_NOT_FOUND)
            return self._groups.not_found(waiter, answer)
        answer = SharePartitionsAnswer(ErrorCode.NONE, group.state_partitions.initialized)
        return told(waiter, answer, group.recorded_end)

    def _begin_states_anew(self, request: NewStatesRequest, waiter: Waiter, now: Now) -> Step:
        group = self._groups.find(request.group_id, ShareGroup)
        if group is None:
            return self._groups.not_found(waiter, NewStatesAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
        error = ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP
        if self._groups.is_being_deleted(request.group_id, now):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # a state could be deleted at once
        if error is not ErrorCode.NONE:
            return told(waiter, NewStatesAnswer(error), group.recorded_end)
        draft = ShareDraft(group)
        draft.begin_states_anew(request.partitions)
        answer = NewStatesAnswer(ErrorCode.NONE, draft.epoch)
        return Step(draft.records, [Reply(waiter, answer)])

    def _delete(self, request: ShareDeletionRequest, waiter: Waiter, now: Now) -> Step:
        group = self._groups.find(request.group_id, ShareGroup)
        if group is None:
            return self._groups.not_found(waiter, ShareDeletionAnswer(ErrorCode.NONE))
        return self._give_up_states(group, None, waiter, now)

    def _delete_states(self, request: StatesDeletionRequest, waiter: Waiter, now: Now) -> Step:
        group = self._groups.find(request.group_id, ShareGroup)
        if group is None:
            answer = ShareDeletionAnswer(ErrorCode.GROUP_ID_NOT_FOUND)
            return self._groups.not_found(waiter, answer)
        return self._give_up_states(group, request.topic_ids, waiter, now)

    def _give_up_states(
        self, group: ShareGroup, topic_ids: frozenset[bytes] | None, waiter: Waiter, now: Now
    ) -> Step:
        """Also close the group for a while, or a member could have states initialized that are
        deleted then. A group that stays and has no such state stays open."""
        if not group.is_empty:
            answer = ShareDeletionAnswer(ErrorCode.NON_EMPTY_GROUP)
            return told(waiter, answer, group.recorded_end)
        draft = ShareDraft(group)
        states = draft.give_up_states(topic_ids)
        if topic_ids is not None and not states:
            step = told(waiter, ShareDeletionAnswer(ErrorCode.NONE, states), group.recorded_end)
            step.records += draft.records
            return step
        number = self._groups.next_deletion()
        answer = ShareDeletionAnswer(ErrorCode.NONE, states, number)
        if not draft.records:
            self._groups.deletion_begun(group.group_id, number, now)
            return told(waiter, answer, group.recorded_end)
        (record,) = draft.records
        return Step([NotedRecord.of(record, PartialDeletion(number))], [Reply(waiter, answer)])
