"""The group coordinator of one partition of ``__consumer_offsets``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from broker.coordinator.group.administration import AdministrationRequests
from broker.coordinator.group.classic.group import ClassicGroup
from broker.coordinator.group.classic.requests import ClassicRequests
from broker.coordinator.group.cleaning import Expiry, TopicDeletion, TopicIds
from broker.coordinator.group.committing import CommitLimits, OffsetRequests
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer.records import ConsumerKey
from broker.coordinator.group.consumer.requests import ConsumerRequests
from broker.coordinator.group.consumer.types import NOTHING_KNOWN, Metadata
from broker.coordinator.group.counters import GroupCounters
from broker.coordinator.group.deadlines import Deadlines, Timer, TimerKind
from broker.coordinator.group.notes import DeletionEnd, Note, NotedRecord, PartialDeletion
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.parts import GroupParts
from broker.coordinator.group.records import GroupKey, OffsetKey, decode_key
from broker.coordinator.group.registry import GroupRegistry
from broker.coordinator.group.share.records import ShareKey
from broker.coordinator.group.share.requests import ShareRequests
from broker.coordinator.group.types import GroupState, GroupType, TopicsDeleted
from broker.coordinator.step import Decide, KeyValue, Now, Request, Step, Waiter
from stele.ids import TopicPartition


class GroupMachine:
    """All groups of the partition; a ``broker.coordinator.step.Machine``.

    Each kind of group brings its requests and its records. This class has the parts that hold for
    all of them: offsets, time, and the life of the coordinator.
    """

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
        the topics are not known. ``metadata`` is for groups of the consumer protocol and for
        share groups."""
        self._config = config
        self._counters = counters
        self._deadlines = Deadlines()
        self._offsets = OffsetStore()
        self._groups = GroupRegistry(lambda group_id: ClassicGroup(group_id, config, deadlines))
        deadlines, groups, offsets = self._deadlines, self._groups, self._offsets
        parts = GroupParts(groups, config, counters, deadlines, new_uuid)
        self._classic = ClassicRequests(parts, offsets.has_trace)
        self._consumer = ConsumerRequests(parts, metadata, offsets.has_any)
        self._share = ShareRequests(parts, metadata)
        limits = CommitLimits(config.offset_metadata_max_bytes, topic_id_of)
        self._decisions: dict[type[Request[Any]], Decide] = {
            **self._classic.decisions,
            **self._consumer.decisions,
            **self._share.decisions,
            **OffsetRequests(groups, offsets, limits).decisions,
            **AdministrationRequests(groups, offsets).decisions,
        }
        self._expiry = Expiry(offsets, config.offsets_retention_minutes * 60_000)
        self._expiry_timer = Timer(deadlines, TimerKind.EXPIRY)
        self._deletion = TopicDeletion(offsets, topic_id_of)
        self._deletion_timer = Timer(deadlines, TimerKind.DELETED_TOPICS)

    # ------------------------------------------------------------------------- events

    def take(self, request: Request[Any], waiter: Waiter, now: Now) -> Step:
        return self._decisions[type(request)](request, waiter, now)

    def note(self, news: TopicsDeleted, now: Now) -> None:
        """Have the offsets of deleted topics removed, some at a time, by ``tick``."""
        self._deletion.add(news.topics)
        self._deletion_timer.set(now.monotonic_ms)

    # ------------------------------------------------------------------------- records

    def replay(self, offset: int, record: KeyValue, now: Now) -> None:
        key, value = decode_key(record.key), record.value
        match key:
            case GroupKey():
                self._classic.replay(offset, key, value, now)
            case ConsumerKey():
                self._consumer.replay(offset, key, value, now)
            case ShareKey():
                self._share.replay(offset, key, value, now)
            case OffsetKey():
                self._replay_offset(offset, key, value)
        if isinstance(record, NotedRecord):
            self._replay_note(record.note, key.group_id, now)

    def _replay_offset(self, offset: int, key: OffsetKey, value: bytes | None) -> None:
        self._offsets.replay(offset, key, value)
        if value is not None:
            self._groups.ensure(key.group_id)
        if self._groups.is_loaded:
            self._counters.offset_commits += value is not None
            self._counters.offset_removals += value is None

    def _replay_note(self, note: Note, group_id: str, now: Now) -> None:
        if isinstance(note, PartialDeletion):
            self._groups.deletion_begun(group_id, note.number, now)
            return
        if isinstance(note, DeletionEnd):
            self._groups.deletion_ended(group_id, note.number)
            return
        group = self._groups.get(group_id)
        if group is not None:
            group.take_note(note, now)

    def replay_pending(self, offset: int, record: KeyValue, producer_id: int, now: Now) -> None:
        key = decode_key(record.key)
        if not isinstance(key, OffsetKey):
            raise ValueError("a transaction that changes a group")
        self._offsets.replay_pending(offset, producer_id, key, record.value)
        self._groups.ensure(key.group_id)
        self._counters.offset_commits += self._groups.is_loaded

    def end_transaction(self, offset: int, producer_id: int, *, commits: bool, now: Now) -> None:
        for key in self._offsets.end_transaction(offset, producer_id, commits=commits):
            self._groups.ensure(key.group_id)

    # ------------------------------------------------------------------------- life

    def loaded(self, now: Now) -> Step:
        self._groups.is_loaded = True
        step = Step()
        for group in self._groups:
            group.loaded(now, step)
        self._await_expiry(now)
        self._deletion.add_all()
        self._deletion_timer.set(now.monotonic_ms)
        return step

    def committed(self, high_watermark: int) -> None:
        self._offsets.committed(high_watermark)

    def unloaded(self) -> list[Waiter]:
        return self._groups.unloaded()

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
            case TimerKind.EXPIRY:
                self._expire(now, step)
            case TimerKind.DELETED_TOPICS:
                self._delete_of_topics(step)
            case _:
                group = self._groups.get(timer.group_id)
                assert group is not None  # a group that goes cancels its deadlines
                group.deadline_passed(timer, now, step)

    def _await_expiry(self, now: Now) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._expiry_timer.set(now.monotonic_ms + interval_ms)

    def _expire(self, now: Now, step: Step) -> None:
        """Look for expired groups and offsets. The timer stays due until the sweep is over."""
        if self._expiry.is_over and len(self._groups) > 0:
            self._expiry.begin(self._groups.ids)
            return  # a step that has records changes nothing else
        self._expiry.go_on(step, self._groups.get, now.time_ms)
        if self._expiry.is_over:
            self._await_expiry(now)

    def _delete_of_topics(self, step: Step) -> None:
        self._deletion.go_on(step)
        if self._deletion.is_over:
            self._deletion_timer.cancel()

    # ------------------------------------------------------------------------- figures

    def groups_by_state(self) -> Counter[GroupState]:
        return Counter(each.state for each in self._groups)

    def groups_by_type(self) -> Counter[GroupType]:
        return Counter(each.listed().group_type for each in self._groups)

    @property
    def offset_count(self) -> int:
        return self._offsets.count

    def committed_offsets(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Group, partition and offset of every commit that clients may see, the oldest groups
        first."""
        for group_id in self._offsets.group_ids:
            for partition, committed in self._offsets.all_told(group_id):
                yield group_id, partition, committed.offset
