"""The requests that only groups of the consumer protocol know (KIP-848), and their records."""

from __future__ import annotations

from collections.abc import Callable

from broker.coordinator.group.classic.generations import Generations
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, check, resolve
from broker.coordinator.group.consumer.migration import upgraded
from broker.coordinator.group.consumer.records import ConsumerKey, Kind
from broker.coordinator.group.consumer.types import (
    JOIN_EPOCH,
    ConsumerDescribeAnswer,
    ConsumerDescribeRequest,
    ConsumerHeartbeatAnswer,
    ConsumerHeartbeatRequest,
    Metadata,
    ResolveRequest,
)
from broker.coordinator.group.deadlines import Deadlines
from broker.coordinator.group.group import Group
from broker.coordinator.group.parts import GroupParts
from broker.coordinator.group.records import decode_key
from broker.coordinator.step import Decisions, Now, Reply, Step, Waiter, told
from stele.errors import ApiError, ErrorCode


class ConsumerRequests:
    """What clients of the consumer protocol ask, and the records of its groups."""

    def __init__(
        self, parts: GroupParts, metadata: Metadata, has_offsets: Callable[[str], bool]
    ) -> None:
        """``has_offsets`` says whether a group has committed offsets, pending ones included."""
        self._groups, self._config, self._counters, self._deadlines, self._new_uuid = parts
        self._metadata = metadata
        self._has_offsets = has_offsets

    @property
    def decisions(self) -> Decisions:
        return {
            ConsumerHeartbeatRequest: self._heartbeat,
            ConsumerDescribeRequest: self._describe,
            ResolveRequest: self._resolve,
        }

    # ------------------------------------------------------------------------- records

    def replay(self, offset: int, key: ConsumerKey, value: bytes | None, now: Now) -> None:
        group = self._groups.find(key.group_id, ConsumerGroup)
        if group is None:
            if value is None:
                self._groups.tombstone_read(offset + 1)
                return
            group = self._groups.put(self._make(key.group_id, self._deadlines))
            group.is_loaded = self._groups.is_loaded
        group.replay(key, value, offset + 1, now)
        if key.kind is Kind.GROUP and value is None:
            self._groups.drop(key.group_id)
            self._groups.tombstone_read(offset + 1)
            if self._has_offsets(key.group_id):
                self._groups.ensure(key.group_id)
        if self._groups.is_loaded and key.kind is Kind.TARGET_EPOCH:
            self._counters.rebalances += value is not None

    def _make(self, group_id: str, deadlines: Deadlines) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._config, deadlines, self._metadata)

    # ------------------------------------------------------------------------- requests

    def _heartbeat(self, request: ConsumerHeartbeatRequest, waiter: Waiter, now: Now) -> Step:
        step = Step()
        former = self._groups.get(request.group_id)
        try:
            if self._groups.is_being_deleted(request.group_id, now):
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group is being deleted: try again"
                )
            check(request, self._config.group_consumer_assignors)
            group = self._group_of(request, former, now, step)
            answer = ConsumerHeartbeat(group, request, now, step, self._new_uuid).decide()
        except ApiError as error:
            answer = ConsumerHeartbeatAnswer(error.code, error.message)
            step = Step()
        step.replies.append(Reply(waiter, answer, self._groups.end_of(former)))
        return step

    def _group_of(
        self, request: ConsumerHeartbeatRequest, former: Group | None, now: Now, step: Step
    ) -> ConsumerGroup:
        """The group of a heartbeat. Its first member makes it, also in the place of a group of
        another kind. Raises ApiError GROUP_ID_NOT_FOUND."""
        if isinstance(former, ConsumerGroup):
            return former
        if request.member_epoch > JOIN_EPOCH:
            # It was removed since it was silent, and the group without it. It has to join again.
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "there is no such consumer group any more")
        if request.member_epoch < JOIN_EPOCH:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such consumer group")
        if former is None or former.may_be_replaced:
            step.records += () if former is None else former.tombstones()
            group = self._make(request.group_id, self._deadlines)
            group.is_loaded = self._groups.is_loaded
            return group
        if not isinstance(former, Generations):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, "the group is of another kind")
        records = upgraded(former, self._config, self._metadata.topics)
        # The group as the records will make it. It decides about the heartbeat, and is dropped.
        group = self._make(request.group_id, Deadlines())
        for record in records:
            key = decode_key(record.key)
            if isinstance(key, ConsumerKey):
                group.replay(key, record.value, -1, now)
        step.records += records
        former.interrupt(step)
        return group

    def _describe(self, request: ConsumerDescribeRequest, waiter: Waiter, now: Now) -> Step:
        group = self._groups.find(request.group_id, ConsumerGroup)
        if group is not None:
            return told(waiter, group.described_in_full(), group.recorded_end)
        answer = ConsumerDescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, request.group_id)
        return self._groups.not_found(waiter, answer)

    def _resolve(self, request: ResolveRequest, waiter: Waiter, now: Now) -> Step:
        step = told(waiter, None)
        group = self._groups.find(request.group_id, ConsumerGroup)
        if group is not None and group.uses_regex(request.regex):
            resolve(group, request.regex, request.resolved, step)
        return step
