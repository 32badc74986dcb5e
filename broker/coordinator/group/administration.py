"""Groups of any kind as administrators see them: described, listed and deleted."""

from __future__ import annotations

from itertools import chain

from broker.coordinator.group.cleaning import some_of
from broker.coordinator.group.notes import NotedRecord, PartialDeletion
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import OffsetKey, offset_record
from broker.coordinator.group.registry import IN_PARTS, GroupRegistry
from broker.coordinator.group.types import (
    DeleteAnswer,
    DeleteRequest,
    DescribeAnswer,
    DescribeRequest,
    GroupState,
    ListedGroup,
    ListRequest,
)
from broker.coordinator.step import Decisions, Now, Reply, Step, Waiter, told
from stele.errors import ErrorCode


class AdministrationRequests:
    """Requests about groups that concern no member."""

    def __init__(self, groups: GroupRegistry, offsets: OffsetStore) -> None:
        self._groups = groups
        self._offsets = offsets

    @property
    def decisions(self) -> Decisions:
        return {
            DescribeRequest: self._describe,
            ListRequest: self._list,
            DeleteRequest: self._delete,
        }

    def _describe(self, request: DescribeRequest, waiter: Waiter, now: Now) -> Step:
        group = self._groups.get(request.group_id)
        if group is None:
            answer = DescribeAnswer(request.group_id, GroupState.DEAD)
            return self._groups.not_found(waiter, answer)
        return told(waiter, group.described(), group.recorded_end)

    def _list(self, request: ListRequest, waiter: Waiter, now: Now) -> Step:
        states = {each.strip().lower() for each in request.states}
        types = {each.strip().lower() for each in request.types}

        def passes(group: ListedGroup) -> bool:
            return (not states or group.state.value.lower() in states) and (
                not types or group.group_type.value in types
            )

        listed = (each.listed() for each in self._groups)
        return told(waiter, tuple(each for each in listed if passes(each)))

    def _delete(self, request: DeleteRequest, waiter: Waiter, now: Now) -> Step:
        group_id = request.group_id
        group = self._groups.get(group_id)
        if group is None:
            return self._groups.not_found(waiter, DeleteAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_empty:
            return told(waiter, DeleteAnswer(ErrorCode.NON_EMPTY_GROUP), group.recorded_end)
        ends = list(group.tombstones())
        offsets = (
            offset_record(OffsetKey(group_id, partition), None)
            for partition in self._offsets.partitions(group_id)
        )
        records = some_of(chain(offsets, ends))
        is_over = records[-1] is ends[-1]
        if not is_over:
            records[0] = NotedRecord.of(records[0], PartialDeletion(IN_PARTS))
        return Step(records, [Reply(waiter, DeleteAnswer(ErrorCode.NONE, is_over=is_over))])
