"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete of one group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.coordinator.group.cleaning import TopicIds, is_gone
from broker.coordinator.group.group import Group
from broker.coordinator.group.notes import Committer, NotedRecord
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import CommittedOffset, OffsetKey, offset_record
from broker.coordinator.group.registry import GroupRegistry
from broker.coordinator.group.types import (
    FetchedOffset,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    OffsetDeleteAnswer,
    OffsetDeleteRequest,
    OffsetFetchAnswer,
    OffsetFetchRequest,
    OffsetToCommit,
    TopicToFetch,
)
from broker.coordinator.layout import STRING_BYTES_MAX, is_too_long, utf16_units
from broker.coordinator.step import Decisions, Now, Reply, Step, Waiter, told
from stele.errors import ErrorCode
from stele.ids import TopicPartition

_LATEST_MS: Final = 2**63 - 1


class CommitLimits(NamedTuple):
    """The limits of a commit."""

    metadata_units_max: int
    topic_ids: TopicIds | None  # None: the topics are not known

    def error(self, offset: OffsetToCommit) -> ErrorCode:
        if is_too_long(offset.topic, most=STRING_BYTES_MAX):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.topic_ids is not None and is_gone(self.topic_ids, offset.topic, offset.topic_id):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # it was deleted since the request came
        if utf16_units(offset.metadata) > self.metadata_units_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE


class OffsetRequests:
    """The requests for offsets of groups of any kind."""

    def __init__(self, groups: GroupRegistry, offsets: OffsetStore, limits: CommitLimits) -> None:
        self._groups = groups
        self._offsets = offsets
        self._limits = limits

    @property
    def decisions(self) -> Decisions:
        return {
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            OffsetDeleteRequest: self._delete,
        }

    def _commit(self, request: OffsetCommitRequest, waiter: Waiter, now: Now) -> Step:
        if self._groups.is_being_deleted(request.group_id, now):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return told(waiter, OffsetCommitAnswer((error,) * len(request.offsets)))
        return commit(self._groups.get(request.group_id), request, waiter, now, self._limits)

    def _fetch(self, request: OffsetFetchRequest, waiter: Waiter, now: Now) -> Step:
        return fetch(self._groups.get(request.group_id), self._offsets, request, waiter)

    def _delete(self, request: OffsetDeleteRequest, waiter: Waiter, now: Now) -> Step:
        if not request.group_id:
            return told(waiter, OffsetDeleteAnswer(ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if group is None:
            answer = OffsetDeleteAnswer(ErrorCode.GROUP_ID_NOT_FOUND)
            return self._groups.not_found(waiter, answer)
        return delete(group, self._offsets, request, waiter)


def commit(
    group: Group | None,
    request: OffsetCommitRequest,
    waiter: Waiter,
    now: Now,
    limits: CommitLimits,
) -> Step:
    """Members commit in their generation, and other clients while the group has no members."""
    step = Step(too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE, producer=request.producer)
    codes = []
    refusals = _refusals(group, request)
    for each, refusal in zip(request.offsets, refusals, strict=True):
        error = refusal or limits.error(each)
        codes.append(error)
        if error is not ErrorCode.NONE:
            continue
        key = OffsetKey(request.group_id, TopicPartition(each.topic, each.partition))
        step.records.append(offset_record(key, _committed(each, request.retention_ms, now)))
    is_by_member = bool(request.member_id) and request.producer is None
    if is_by_member and group is not None and group.commits_keep_sessions and not any(refusals):
        _note_committer(group, request.member_id, now, step)
    after = -1 if group is None else group.recorded_end  # refusals say what its records say
    step.replies.append(Reply(waiter, OffsetCommitAnswer(tuple(codes)), after))
    return step


def _note_committer(group: Group, member_id: str, now: Now, step: Step) -> None:
    if step.records:
        step.records[0] = NotedRecord.of(step.records[0], Committer(member_id))
    else:
        group.take_note(Committer(member_id), now)


def _refusals(group: Group | None, request: OffsetCommitRequest) -> tuple[ErrorCode, ...]:
    """One for each offset; NONE: it may be committed."""
    if group is not None:
        return group.commit_errors(request)
    if is_too_long(request.group_id, most=STRING_BYTES_MAX):
        error = ErrorCode.INVALID_GROUP_ID
    elif request.generation < 0:  # the first commit of a consumer that assigns partitions itself
        error = ErrorCode.NONE
    elif request.knows_group_id_not_found and request.producer is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    else:
        error = ErrorCode.ILLEGAL_GENERATION
    return (error,) * len(request.offsets)


def _committed(each: OffsetToCommit, retention_ms: int | None, now: Now) -> CommittedOffset:
    return CommittedOffset(
        each.offset,
        each.leader_epoch,
        each.metadata,
        now.time_ms,
        -1 if retention_ms is None else max(0, min(now.time_ms + retention_ms, _LATEST_MS)),
        each.topic_id,
    )


def fetch(
    group: Group | None, offsets: OffsetStore, request: OffsetFetchRequest, waiter: Waiter
) -> Step:
    """Answer with the committed offsets at once, or with the newest ones when they are
    committed."""
    if group is not None:
        error = group.fetch_error(request.member_id, request.member_epoch)
        if error is not ErrorCode.NONE:
            return Step(replies=[Reply(waiter, OffsetFetchAnswer((), error), group.recorded_end)])
    after = offsets.end(request.group_id) if request.require_stable else -1
    if request.topics is None:
        every = offsets.all_newest if request.require_stable else offsets.all_told
        found = tuple(
            _unstable(*partition, committed.topic_id)
            if request.require_stable and offsets.is_pending(request.group_id, partition)
            else _fetched(partition, committed)
            for partition, committed in every(request.group_id)
        )
    else:
        found = tuple(
            fetched for topic in request.topics for fetched in _fetch(offsets, request, topic)
        )
    return Step(replies=[Reply(waiter, OffsetFetchAnswer(found), after)])


def _fetch(
    offsets: OffsetStore, request: OffsetFetchRequest, asked: TopicToFetch
) -> Iterator[FetchedOffset]:
    find = offsets.newest if request.require_stable else offsets.told
    for number in asked.partitions:
        partition = TopicPartition(asked.topic, number)
        if request.require_stable and offsets.is_pending(request.group_id, partition):
            yield _unstable(*partition, asked.topic_id)
            continue
        committed = find(request.group_id, partition)
        if committed is None or _is_of_another_topic(committed.topic_id, asked.topic_id):
            yield FetchedOffset(asked.topic, number, topic_id=asked.topic_id)
        else:
            yield _fetched(partition, committed)


def _is_of_another_topic(committed_id: bytes, asked_id: bytes) -> bool:
    return any(committed_id) and any(asked_id) and committed_id != asked_id


def _unstable(topic: str, number: int, topic_id: bytes) -> FetchedOffset:
    return FetchedOffset(topic, number, topic_id=topic_id, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _fetched(partition: TopicPartition, committed: CommittedOffset) -> FetchedOffset:
    return FetchedOffset(
        *partition,
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.topic_id,
    )


def delete(
    group: Group, offsets: OffsetStore, request: OffsetDeleteRequest, waiter: Waiter
) -> Step:
    """Delete offsets that no member uses (KIP-496)."""
    after = max(group.recorded_end, offsets.end(group.group_id))
    if not group.is_empty and not group.has_consumers:
        refused = OffsetDeleteAnswer(ErrorCode.NON_EMPTY_GROUP)
        return Step(replies=[Reply(waiter, refused, after)])
    step = Step()
    codes = []
    for each in request.offsets:
        if group.is_subscribed_to(each.topic):
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        codes.append(ErrorCode.NONE)
        partition = TopicPartition(each.topic, each.partition)
        is_there = offsets.newest(group.group_id, partition) is not None
        if is_there or offsets.is_pending(group.group_id, partition):
            step.records.append(offset_record(OffsetKey(group.group_id, partition), None))
    answer = OffsetDeleteAnswer(ErrorCode.NONE, tuple(codes))
    step.replies.append(Reply(waiter, answer, after))
    return step
