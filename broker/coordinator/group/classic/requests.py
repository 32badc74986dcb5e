"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the requests of the classic protocol.

They may meet a group of another kind, which then decides them in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.coordinator.group.classic.group import ClassicGroup
from broker.coordinator.group.parts import GroupParts
from broker.coordinator.group.records import GroupKey, decode_group
from broker.coordinator.group.types import (
    UNKNOWN_MEMBER,
    GroupState,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.layout import STRING_BYTES_MAX, is_too_long
from broker.coordinator.step import Decisions, Now, Step, Waiter, told
from stele.errors import ErrorCode

PROTOCOLS_MAX: Final = 100
"""Protocols of one member. Every choice of a protocol compares the lists of all members."""

PROTOCOL_BYTES_MAX: Final = 1024 * 1024
"""Names and metadata of all protocols of one member together. They stay in memory, and those of the
chosen protocol must fit into a record."""

IDS_MAX: Final = 5_000
"""Member ids that were given out and not used yet, of all groups of a partition. Clients use theirs
at once. So beyond that the oldest one is forgotten, and its client gets another one."""


class ClassicRequests:
    """What clients of the classic protocol ask, and the records of its groups."""

    def __init__(self, parts: GroupParts, has_offsets: Callable[[str], bool]) -> None:
        """``has_offsets`` says whether there are offsets of a group, or tombstones of them that are
        not committed."""
        self._groups, self._config, self._counters, self._deadlines, self._new_uuid = parts
        self._has_offsets = has_offsets
        # Group and member ids that were given out, the oldest ones first. Some may be used by now.
        self._given: dict[tuple[str, str], None] = {}

    @property
    def decisions(self) -> Decisions:
        return {
            JoinRequest: self._join,
            SyncRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveRequest: self._leave,
        }

    # ------------------------------------------------------------------------- records

    def replay(self, offset: int, key: GroupKey, value: bytes | None, now: Now) -> None:
        group = self._groups.find(key.group_id, ClassicGroup)
        if value is None:
            if group is not None:
                self._groups.drop(key.group_id)
            self._groups.tombstone_read(offset + 1)
            return
        recorded = decode_group(value)
        group = group or self._groups.put(self._make(key.group_id))
        was_rebalancing = group.state is GroupState.COMPLETING_REBALANCE
        group.replay(recorded, offset + 1, now)
        self._counters.rebalances += was_rebalancing and group.state is GroupState.STABLE

    def _make(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._config, self._deadlines)

    # ------------------------------------------------------------------------- joining

    def _join(self, request: JoinRequest, waiter: Waiter, now: Now) -> Step:
        error = self._join_error(request)
        if self._groups.is_being_deleted(request.group_id, now):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error is not ErrorCode.NONE:
            return told(waiter, JoinAnswer(error, request.member_id))
        group = self._groups.get(request.group_id)
        if group is None and request.member_id != UNKNOWN_MEMBER:
            return self._groups.not_found(
                waiter, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            )
        step = Step()
        group = group or self._make(request.group_id)
        group.join(request, waiter, now, step, self._new_member_id)
        if isinstance(group, ClassicGroup):
            self._keep(group, now, step)
        return step

    def _keep(self, group: ClassicGroup, now: Now, step: Step) -> None:
        """Know the group from now on, if it is used, and the id that it has given out."""
        if group.is_used:
            self._groups.put(group)
        newest = next(reversed(group.pending), None)
        if newest is not None and (group.group_id, newest) not in self._given:
            self._given[group.group_id, newest] = None
            self._forget_oldest_id(now, step)

    def _forget_oldest_id(self, now: Now, step: Step) -> None:
        """Removed if there are too many. Its client gets UNKNOWN_MEMBER_ID if it comes later."""
        if len(self._given) <= IDS_MAX:
            return
        group_id, member_id = next(iter(self._given))
        del self._given[group_id, member_id]
        group = self._groups.find(group_id, ClassicGroup)
        if group is None or member_id not in group.pending:
            return  # it was used
        group.session_is_over(member_id, now, step)
        has_records = group.recorded_end != -1 or self._has_offsets(group_id)
        if not has_records and not group.is_used:
            self._groups.drop(group_id)

    def _join_error(self, request: JoinRequest) -> ErrorCode:
        config = self._config
        if not request.group_id or is_too_long(request.group_id, most=STRING_BYTES_MAX):
            return ErrorCode.INVALID_GROUP_ID
        least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not least <= request.session_timeout_ms <= most:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        protocols = (each.name for each in request.protocols)
        of_member = (request.client_id, request.client_host, request.group_instance_id)
        if is_too_long(*of_member, request.protocol_type, *protocols):
            return ErrorCode.INVALID_REQUEST
        size = sum(len(each.name.encode()) + len(each.metadata) for each in request.protocols)
        if len(request.protocols) > PROTOCOLS_MAX or size > PROTOCOL_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._new_uuid()}"

    # ------------------------------------------------------------------------- staying, leaving

    def _sync(self, request: SyncRequest, waiter: Waiter, now: Now) -> Step:
        if not request.group_id:
            return told(waiter, SyncAnswer(ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if group is None:
            return self._groups.not_found(waiter, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        step = Step()
        group.sync(request, waiter, now, step)
        return step

    def _heartbeat(self, request: HeartbeatRequest, waiter: Waiter, now: Now) -> Step:
        if not request.group_id:
            return told(waiter, ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(request.group_id)
        if group is None:
            return self._groups.not_found(waiter, ErrorCode.UNKNOWN_MEMBER_ID)
        step = Step()
        group.heartbeat(request, waiter, now, step)
        return step

    def _leave(self, request: LeaveRequest, waiter: Waiter, now: Now) -> Step:
        if not request.group_id:
            return told(waiter, LeaveAnswer(ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if group is None:
            errors = (ErrorCode.UNKNOWN_MEMBER_ID,) * len(request.members)
            return self._groups.not_found(waiter, LeaveAnswer(ErrorCode.NONE, errors))
        step = Step()
        group.leave(request, waiter, now, step)
        return step
