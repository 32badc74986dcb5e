"""The group coordinator of one partition of ``__consumer_offsets``."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, TypeVar

from broker.coordinator.group.any_group import AnyGroup
from broker.coordinator.group.classic import ClassicGroup
from broker.coordinator.group.cleaning import (
    Expiry,
    TopicDeletion,
    TopicIds,
    some_of,
)
from broker.coordinator.group.committing import CommitLimits, commit, delete, fetch
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer import classic_members
from broker.coordinator.group.consumer.classic_members import ClassicJoin
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, check, remove, resolve
from broker.coordinator.group.consumer.migration import upgraded
from broker.coordinator.group.consumer.records import ConsumerKey, Kind, ResolvedRegex
from broker.coordinator.group.consumer.types import (
    JOIN_EPOCH,
    NOTHING_KNOWN,
    ConsumerDescribeAnswer,
    ConsumerHeartbeatAnswer,
    ConsumerHeartbeatRequest,
    Metadata,
)
from broker.coordinator.group.counters import GroupCounters
from broker.coordinator.group.deadlines import Deadlines, Timer, TimerKind
from broker.coordinator.group.joining import Joining
from broker.coordinator.group.notes import (
    Committer,
    Note,
    NotedRecord,
    PartialDeletion,
    Successor,
)
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    offset_record,
)
from broker.coordinator.group.types import (
    UNKNOWN_MEMBER,
    DeleteAnswer,
    DeletedTopic,
    DescribeAnswer,
    GroupState,
    GroupType,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    ListedGroup,
    ListRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    OffsetDeleteAnswer,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.layout import STRING_BYTES_MAX, is_too_long
from broker.coordinator.step import KeyValue, Now, Reply, Step, Waiter
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition

logger = logging.getLogger(__name__)

G = TypeVar("G", ClassicGroup, ConsumerGroup)

PROTOCOLS_MAX: Final = 100
"""Protocols of one member. Every choice of a protocol compares those of all members."""

PROTOCOL_BYTES_MAX: Final = 1024 * 1024
"""Names and metadata of all protocols of one member together. They stay in memory, and those of the
chosen protocol must fit into a record."""

DELETION_MS: Final = 10_000
"""How long after a part of a group was deleted the group is closed for the next part. Otherwise a
member could join a group that has lost some of its offsets, and the rest would stay. If the
deletion ends early, the group opens again after this time."""

IDS_MAX: Final = 5_000
"""Member ids that were given out and not used yet, of all groups of a partition. Clients use theirs
at once. So beyond that the oldest one is forgotten, and its client gets another one."""


class GroupMachine:
    """All groups of the partition; a ``broker.coordinator.step.Machine``."""

    def __init__(
        self,
        config: GroupConfig,
        new_uuid: Callable[[], str],
        counters: GroupCounters,
        topic_id_of: TopicIds | None = None,
        metadata: Metadata = NOTHING_KNOWN,
    ) -> None:
        """``new_uuid`` makes the random part of a member id. ``counters`` are added to.
        ``topic_id_of`` tells the id of a topic now, or None if there is no such topic; without it,
        the topics are not known. ``metadata`` is for groups of the consumer protocol."""
        self._metadata = metadata
        self._config = config
        self._counters = counters
        self._is_loaded = False
        self._new_uuid = new_uuid
        self._deadlines = Deadlines()
        self._groups: dict[str, AnyGroup] = {}
        # Group and member ids that were given out, the oldest ones first. Some may be used by now.
        self._given: dict[tuple[str, str], None] = {}
        # The offset after the last tombstone of a group. The answer that a group does not exist is
        # sent when it is committed.
        self._removed_end = -1
        # Groups that are deleted in parts, by name. Until this time nobody may join or commit.
        self._deleted_until_ms: dict[str, float] = {}
        self._offsets = OffsetStore()
        self._topic_id_of = topic_id_of
        self._expiry = Expiry(self._offsets, config.offsets_retention_minutes * 60_000)
        self._expiry_timer = Timer(self._deadlines, TimerKind.EXPIRY)
        self._deletion = TopicDeletion(self._offsets, topic_id_of)
        self._deletion_timer = Timer(self._deadlines, TimerKind.DELETED_TOPICS)

    # ------------------------------------------------------------------------- life

    def replay(self, offset: int, record: KeyValue, now: Now) -> None:
        key, value = decode_key(record.key), record.value
        if isinstance(key, GroupKey):
            self._replay_group(offset, key.group_id, value, now)
        elif isinstance(key, ConsumerKey):
            self._replay_consumer(offset, key, value, now)
        else:
            self._offsets.replay(offset, key, value)
            if value is not None:
                self._ensure_group(key.group_id)
            if self._is_loaded:
                self._counters.offset_commits += value is not None
                self._counters.offset_removals += value is None
        if isinstance(record, NotedRecord):
            self._replay_note(record.note, key.group_id, now)

    def _replay_note(self, note: Note, group_id: str, now: Now) -> None:
        group = self._groups.get(group_id)
        match note:
            case Successor() if isinstance(group, ClassicGroup):
                group.members[note.member_id].protocols = note.protocols
            case Committer() if isinstance(group, ClassicGroup):
                group.has_committed(note.member_id, now)
            case PartialDeletion():
                self._deleted_until_ms[group_id] = now.monotonic_ms + DELETION_MS

    def replay_pending(self, offset: int, record: KeyValue, producer_id: int, now: Now) -> None:
        key = decode_key(record.key)
        if not isinstance(key, OffsetKey):
            raise ValueError("a transaction that changes a group")
        self._offsets.replay_pending(offset, producer_id, key, record.value)
        self._ensure_group(key.group_id)
        self._counters.offset_commits += self._is_loaded

    def end_transaction(self, offset: int, producer_id: int, *, commits: bool, now: Now) -> None:
        for key in self._offsets.end_transaction(offset, producer_id, commits=commits):
            self._ensure_group(key.group_id)

    def _ensure_group(self, group_id: str) -> None:
        """A group exists as long as it has offsets, pending or not."""
        if group_id not in self._groups:
            self._groups[group_id] = self._make_group(group_id)

    def _replay_group(self, offset: int, group_id: str, value: bytes | None, now: Now) -> None:
        if value is None:
            if isinstance(self._groups.get(group_id), ClassicGroup):
                self._groups.pop(group_id).dissolve()
                self._deleted_until_ms.pop(group_id, None)
            self._removed_end = offset + 1
        else:
            recorded = decode_group(value)
            group = self._groups.get(group_id)
            if not isinstance(group, ClassicGroup):
                group = self._replace(group, self._make_group(group_id))
            was_rebalancing = group.state is GroupState.COMPLETING_REBALANCE
            group.replay(recorded, offset + 1, now)
            self._counters.rebalances += was_rebalancing and group.state is GroupState.STABLE

    def _replay_consumer(
        self, offset: int, key: ConsumerKey, value: bytes | None, now: Now
    ) -> None:
        group = self._groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                self._removed_end = offset + 1
                return
            group = self._replace(group, self._make_consumer_group(key.group_id))
        group.replay(key, value, offset + 1, now)
        if key.kind is Kind.GROUP and value is None:
            self._groups.pop(key.group_id).dissolve()
            self._deleted_until_ms.pop(key.group_id, None)
            self._removed_end = offset + 1
            if self._offsets.has_any(key.group_id):
                self._ensure_group(key.group_id)
        if self._is_loaded and key.kind is Kind.TARGET_EPOCH:
            self._counters.rebalances += value is not None

    def _replace(self, former: AnyGroup | None, group: G) -> G:
        """Put a group of one protocol in the place of one of the other."""
        if former is not None:
            former.dissolve()
        self._groups[group.group_id] = group
        return group

    def _make_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._config, self._deadlines)

    def _make_consumer_group(self, group_id: str) -> ConsumerGroup:
        group = ConsumerGroup(group_id, self._config, self._deadlines, self._metadata)
        if self._is_loaded:
            group.is_loaded = True
        return group

    def loaded(self, now: Now) -> Step:
        self._is_loaded = True
        step = Step()
        for group in self._groups.values():
            group.loaded(now, step)
        self._await_expiry(now)
        self._deletion.add_all()
        self._deletion_timer.set(now.monotonic_ms)
        return step

    def committed(self, high_watermark: int) -> None:
        self._offsets.committed(high_watermark)

    def unloaded(self) -> list[Waiter]:
        groups, self._groups = self._groups, {}
        return [waiter for each in groups.values() for waiter in each.waiters()]

    # ------------------------------------------------------------------------- time

    @property
    def deadline_ms(self) -> float | None:
        return self._deadlines.first_ms

    def tick(self, now: Now) -> Step:
        step = Step()
        timer = self._deadlines.due(now.monotonic_ms)
        if timer is not None:
            self._pass(timer, now, step)
        return step

    def put_off(self, until_ms: float, now: Now) -> str:
        timer = self._deadlines.due(now.monotonic_ms)
        if timer is None:
            return "nothing"
        timer.set(until_ms)
        return str(timer)

    def _pass(self, timer: Timer, now: Now, step: Step) -> None:
        """Handle a deadline. It is moved or cancelled, either here or by the step's records."""
        match timer.kind:
            case TimerKind.SESSION | TimerKind.REBALANCE | TimerKind.JOIN | TimerKind.SYNC:
                self._pass_in_group(self._groups[timer.group_id], timer, now, step)
            case TimerKind.EXPIRY:
                self._expire(now, step)
            case TimerKind.DELETED_TOPICS:
                self._delete_of_topics(step)

    def _pass_in_group(self, group: AnyGroup, timer: Timer, now: Now, step: Step) -> None:
        if isinstance(group, ConsumerGroup):
            logger.info(
                "group %s: the %s time-out of %s has passed",
                group.group_id, timer.kind.value, timer.member_id,
            )  # fmt: skip
            remove(group, timer.member_id, now, step)
        elif timer.kind is TimerKind.SESSION:
            group.session_is_over(timer.member_id, now, step)
        elif timer.kind is TimerKind.JOIN:
            group.join_time_is_over(now, step)
        else:
            group.sync_time_is_over(now, step)

    def _await_expiry(self, now: Now) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._expiry_timer.set(now.monotonic_ms + interval_ms)

    def _expire(self, now: Now, step: Step) -> None:
        """Look for expired groups and offsets. The timer stays due until the sweep is over."""
        if self._expiry.is_over and self._groups:
            self._expiry.begin(self._groups)
            return  # a step that has records changes nothing else
        self._expiry.go_on(step, self._groups.get, now.time_ms)
        if self._expiry.is_over:
            self._await_expiry(now)

    def _delete_of_topics(self, step: Step) -> None:
        self._deletion.go_on(step)
        if self._deletion.is_over:
            self._deletion_timer.cancel()

    # ------------------------------------------------------------------------- members

    def join(self, request: JoinRequest, waiter: Waiter, now: Now) -> Step:
        group = self._groups.get(request.group_id)
        error = self._join_error(request)
        if self._is_being_deleted(request.group_id, now):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error is not ErrorCode.NONE:
            return _say(waiter, JoinAnswer(error, request.member_id))
        if group is None and request.member_id != UNKNOWN_MEMBER:
            return self._not_found(
                waiter, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            )
        if isinstance(group, ConsumerGroup):
            return self._join_consumers(group, request, waiter, now)
        step = Step()
        group = group or self._make_group(request.group_id)
        pending = len(group.pending)
        Joining(group, request, waiter, now, step, self._new_member_id).decide()
        if group.is_used:
            self._groups[group.group_id] = group
        if len(group.pending) > pending:
            self._given[group.group_id, next(reversed(group.pending))] = None
            self._forget_oldest_id(now, step)
        return step

    def _forget_oldest_id(self, now: Now, step: Step) -> None:
        """If there are too many. Its client is told UNKNOWN_MEMBER_ID if it comes after all."""
        if len(self._given) <= IDS_MAX:
            return
        group_id, member_id = next(iter(self._given))
        del self._given[group_id, member_id]
        group = self._classic(group_id)
        if group is None or member_id not in group.pending:
            return  # it was used
        group.session_is_over(member_id, now, step)
        has_offsets = self._offsets.end(group_id) != -1 or self._offsets.has_any(group_id)
        has_records = group.recorded_end != -1 or has_offsets
        if not has_records and not group.is_used:
            self._groups.pop(group_id).dissolve()

    def _join_consumers(
        self, group: ConsumerGroup, request: JoinRequest, waiter: Waiter, now: Now
    ) -> Step:
        """A client of the classic protocol joins a group of the consumer protocol. If that is
        empty, it is removed, and the client joins again."""
        if group.is_empty:
            again = JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, request.member_id)
            return Step(list(group.tombstones()), [Reply(waiter, again)])
        step = Step()
        try:
            answer = ClassicJoin(group, request, now, step, self._new_member_id).decide()
        except ApiError as error:
            answer = JoinAnswer(error.code, request.member_id)
        step.replies.append(Reply(waiter, answer, group.recorded_end))
        return step

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

    def sync(self, request: SyncRequest, waiter: Waiter, now: Now) -> Step:
        if not request.group_id:
            return _say(waiter, SyncAnswer(ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if group is None:
            return self._not_found(waiter, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        step = Step()
        if isinstance(group, ConsumerGroup):
            classic_members.sync(group, request, waiter, now, step)
        else:
            group.sync(request, waiter, now, step)
        return step

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter, now: Now) -> Step:
        if not request.group_id:
            return _say(waiter, ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(request.group_id)
        if group is None:
            return self._not_found(waiter, ErrorCode.UNKNOWN_MEMBER_ID)
        step = Step()
        if isinstance(group, ConsumerGroup):
            classic_members.heartbeat(group, request, waiter, now, step)
        else:
            group.heartbeat(request, waiter, now, step)
        return step

    def leave(self, request: LeaveRequest, waiter: Waiter, now: Now) -> Step:
        if not request.group_id:
            return _say(waiter, LeaveAnswer(ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if group is None:
            errors = (ErrorCode.UNKNOWN_MEMBER_ID,) * len(request.members)
            return self._not_found(waiter, LeaveAnswer(ErrorCode.NONE, errors))
        step = Step()
        if isinstance(group, ConsumerGroup):
            classic_members.leave(group, request, waiter, now, step)
        else:
            group.leave(request, waiter, now, step)
        return step

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # ------------------------------------------------------------------------- consumers

    def consumer_heartbeat(
        self, request: ConsumerHeartbeatRequest, waiter: Waiter, now: Now
    ) -> Step:
        """Answers a ConsumerHeartbeatAnswer."""
        step = Step()
        former = self._groups.get(request.group_id)
        try:
            if self._is_being_deleted(request.group_id, now):
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group is being deleted: ask again"
                )
            check(request, self._config.group_consumer_assignors)
            group = self._consumer_group(former, request, now, step)
            heartbeat = ConsumerHeartbeat(group, request, now, step, self._new_uuid)
            answer = heartbeat.decide()
        except ApiError as error:
            answer = ConsumerHeartbeatAnswer(error.code, error.message)
            step = Step()
        after = self._removed_end if former is None else former.recorded_end
        step.replies.append(Reply(waiter, answer, after))
        return step

    def _consumer_group(
        self, former: AnyGroup | None, request: ConsumerHeartbeatRequest, now: Now, step: Step
    ) -> ConsumerGroup:
        """The group of a heartbeat. Its first member makes it, also in the place of a group of the
        classic protocol. Raises ApiError GROUP_ID_NOT_FOUND."""
        if isinstance(former, ConsumerGroup):
            return former
        if request.member_epoch > JOIN_EPOCH:
            # It was removed since it was silent, and the group without it. It has to join again.
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "there is no such consumer group any more")
        if request.member_epoch < JOIN_EPOCH:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such consumer group")
        group = self._make_consumer_group(request.group_id)
        if former is not None and former.is_empty:
            step.records += former.tombstones()
        elif former is not None:
            records = upgraded(former, self._config, self._metadata.topics)
            # The group as the records will make it. It decides about the heartbeat, and is dropped.
            group = ConsumerGroup(request.group_id, self._config, Deadlines(), self._metadata)
            for record in records:
                key = decode_key(record.key)
                if isinstance(key, ConsumerKey):
                    group.replay(key, record.value, -1, now)
            step.records += records
            former.interrupt(step)
        return group

    def resolve_regex(
        self, group_id: str, regex: str, resolved: ResolvedRegex, waiter: Waiter, now: Now
    ) -> Step:
        """Have a group know which topics a regular expression of its members stands for by now.
        Answers None."""
        step = Step(replies=[Reply(waiter, None)])
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.uses_regex(regex):
            resolve(group, regex, resolved, step)
        return step

    # ------------------------------------------------------------------------- offsets

    def commit_offsets(self, request: OffsetCommitRequest, waiter: Waiter, now: Now) -> Step:
        if self._is_being_deleted(request.group_id, now):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return _say(waiter, OffsetCommitAnswer((error,) * len(request.offsets)))
        group = self._groups.get(request.group_id)
        limits = CommitLimits(self._config.offset_metadata_max_bytes, self._topic_id_of)
        return commit(group, request, waiter, now, limits)

    def fetch_offsets(self, request: OffsetFetchRequest, waiter: Waiter, now: Now) -> Step:
        return fetch(self._groups.get(request.group_id), self._offsets, request, waiter)

    def delete_offsets(self, request: OffsetDeleteRequest, waiter: Waiter, now: Now) -> Step:
        if not request.group_id:
            return _say(waiter, OffsetDeleteAnswer(ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if group is None:
            return self._not_found(waiter, OffsetDeleteAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
        return delete(group, self._offsets, request, waiter)

    def topics_deleted(self, topics: Iterable[DeletedTopic], now: Now) -> None:
        """Have the offsets of these topics removed, some at a time, by ``tick``."""
        self._deletion.add(topics)
        self._deletion_timer.set(now.monotonic_ms)

    # ------------------------------------------------------------------------- administration

    def groups_by_state(self) -> Counter[GroupState]:
        return Counter(each.state for each in self._groups.values())

    def groups_by_type(self) -> Counter[GroupType]:
        return Counter(each.listed().group_type for each in self._groups.values())

    @property
    def offset_count(self) -> int:
        return self._offsets.count

    def committed_offsets(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Group, partition and offset of everything that may be told, the oldest groups first."""
        for group_id in self._offsets.group_ids:
            for partition, committed in self._offsets.all_told(group_id):
                yield group_id, partition, committed.offset

    def describe(self, group_id: str, waiter: Waiter, now: Now) -> Step:
        """Answers a DescribeAnswer."""
        group = self._groups.get(group_id)
        if group is None:
            return self._not_found(waiter, DescribeAnswer(group_id, GroupState.DEAD))
        return _say(waiter, group.described(), group.recorded_end)

    def describe_consumers(self, group_id: str, waiter: Waiter, now: Now) -> Step:
        """Answers a ConsumerDescribeAnswer."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return _say(waiter, group.described_in_full(), group.recorded_end)
        answer = ConsumerDescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        return self._not_found(waiter, answer)

    def list(self, request: ListRequest, waiter: Waiter, now: Now) -> Step:
        """Answers a tuple of ListedGroup at once, without waiting for commits."""
        states = {each.strip().lower() for each in request.states}
        types = {each.strip().lower() for each in request.types}

        def passes(group: ListedGroup) -> bool:
            return (not states or group.state.value.lower() in states) and (
                not types or group.group_type.value in types
            )

        listed = (each.listed() for each in self._groups.values())
        return _say(waiter, tuple(each for each in listed if passes(each)))

    def delete(self, group_id: str, waiter: Waiter, now: Now) -> Step:
        """Answers a DeleteAnswer. Each request deletes as many offsets as fit into a step. The last
        one deletes the group, too."""
        group = self._groups.get(group_id)
        if group is None:
            return self._not_found(waiter, DeleteAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_empty:
            return _say(waiter, DeleteAnswer(ErrorCode.NON_EMPTY_GROUP), group.recorded_end)
        ends = list(group.tombstones())
        offsets = (
            offset_record(OffsetKey(group_id, partition), None)
            for partition in self._offsets.partitions(group_id)
        )
        records = some_of(chain(offsets, ends))
        is_over = records[-1] is ends[-1]
        if not is_over:
            records[0] = NotedRecord.of(records[0], PartialDeletion())
        return Step(records, [Reply(waiter, DeleteAnswer(ErrorCode.NONE, is_over=is_over))])

    def _is_being_deleted(self, group_id: str, now: Now) -> bool:
        """Clients that are refused for this reason ask again soon."""
        return self._deleted_until_ms.get(group_id, now.monotonic_ms) > now.monotonic_ms

    def _not_found(self, waiter: Waiter, answer: object) -> Step:
        return _say(waiter, answer, self._removed_end)


def _say(waiter: Waiter, answer: object, after: int = -1) -> Step:
    return Step(replies=[Reply(waiter, answer, after)])
