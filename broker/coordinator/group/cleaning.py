"""Which offsets and groups are removed, and how: some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from broker.coordinator.group.group import Group
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import (
    CommittedOffset,
    OffsetKey,
    offset_record,
)
from broker.coordinator.group.types import DeletedTopic, GroupState
from broker.coordinator.step import STEP_BYTES, KeyValue, Step

_LOOKS_A_STEP: Final = 25  # a turn of the loop has many steps

TopicIds = Callable[[str], bytes | None]
"""The id of the topic that has this name now; None: there is no such topic."""

_KNOWN_TOPICS: Final = frozenset({GroupState.STABLE, GroupState.ASSIGNING, GroupState.RECONCILING})
"""The states in which the topics that consumers use are known."""


class Sweep:
    """Goes through the offsets of groups, one topic after the other, and writes tombstones."""

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets
        self._groups: deque[str] = deque()
        # Of the first group; None: it was not looked at yet.
        self._topics: deque[str] | None = None

    def begin(self, group_ids: Iterable[str]) -> None:
        self._groups = deque(group_ids)
        self._topics = None

    @property
    def is_over(self) -> bool:
        return not self._groups

    def go_on(
        self,
        step: Step,
        find: Callable[[str, str], Iterator[KeyValue]],
        find_at_end: Callable[[str], Iterator[KeyValue]],
    ) -> None:
        """Look at the next offsets, up to a bound. ``find`` has the tombstones for a group's
        offsets of one topic, ``find_at_end`` those that are due when nothing else of the group is.
        What needs tombstones is looked at again after them."""
        looks = 0
        while self._groups and looks < _LOOKS_A_STEP:
            group_id = self._groups[0]
            looks += 1
            if self._topics is None:
                self._topics = deque(self._offsets.topics(group_id))
                continue
            topic = self._topics[0] if self._topics else None
            found = find_at_end(group_id) if topic is None else find(group_id, topic)
            records = some_of(found)
            if records:
                if looks == 1:  # else this step has changed the sweep, so it must not have records
                    step.records += records
                break
            if topic is None:
                self._groups.popleft()
                self._topics = None
            else:
                self._topics.popleft()
                looks += self._offsets.count_of_topic(group_id, topic)


def some_of(records: Iterator[KeyValue]) -> list[KeyValue]:
    """The first records, as many as one step has of work that can be divided."""
    taken: list[KeyValue] = []
    size = 0
    for record in records:
        taken.append(record)
        size += len(record.key)
        if size >= STEP_BYTES:
            break
    return taken


# ------------------------------------------------------------------------------- expiry


class Expiry:
    """Removes offsets that were not used for the retention time, and groups that have no members
    and no other offsets (KIP-211)."""

    def __init__(self, offsets: OffsetStore, retention_ms: int) -> None:
        self._offsets = offsets
        self._retention_ms = retention_ms
        self._sweep = Sweep(offsets)

    @property
    def is_over(self) -> bool:
        return self._sweep.is_over

    def begin(self, group_ids: Iterable[str]) -> None:
        self._sweep.begin(group_ids)

    def go_on(self, step: Step, groups: Callable[[str], Group | None], now_ms: int) -> None:
        def find(group_id: str, topic: str) -> Iterator[KeyValue]:
            group = groups(group_id)
            if group is None or not _may_expire(group, topic):
                return
            for partition, committed in self._offsets.newest_of_topic(group_id, topic):
                if self._offsets.is_pending(group_id, partition):
                    continue  # it is used, and the transaction's offset would go, too
                if self._is_expired(group, committed, now_ms):
                    yield offset_record(OffsetKey(group_id, partition), None)

        def find_at_end(group_id: str) -> Iterator[KeyValue]:
            group = groups(group_id)
            if group is None or not group.is_empty or group.is_used:
                return
            if not self._offsets.has_any(group_id):
                yield from group.tombstones()

        self._sweep.go_on(step, find, find_at_end)

    def _is_expired(self, group: Group, committed: CommittedOffset, now_ms: int) -> bool:
        if committed.expire_time_ms >= 0:
            return now_ms >= committed.expire_time_ms
        used_ms = committed.commit_time_ms
        if group.is_empty:
            used_ms = max(used_ms, group.state_time_ms)  # the last member has left then
        return now_ms - used_ms >= self._retention_ms


def _may_expire(group: Group, topic: str) -> bool:
    if group.is_subscribed_to(topic):
        return False
    # Otherwise the topics that the members use are not known.
    return group.is_empty or (group.has_consumers and group.state in _KNOWN_TOPICS)


# ------------------------------------------------------------------------------- deleted topics


def is_gone(topic_ids: TopicIds, topic: str, topic_id: bytes) -> bool:
    """Whether there is no such topic now, or another one with its name. Zeros: the id is not
    known."""
    current_id = topic_ids(topic)
    return current_id is None or (any(topic_id) and topic_id != current_id)


class TopicDeletion:
    """Removes the offsets of deleted topics."""

    def __init__(self, offsets: OffsetStore, topic_ids: TopicIds | None) -> None:
        self._offsets = offsets
        self._topic_ids = topic_ids
        self._sweep = Sweep(offsets)
        # Of the sweep: ids by the name of each deleted topic. None: all topics are looked up.
        self._deleted: dict[str, set[bytes]] | None = {}
        # For the next sweep.
        self._more: dict[str, set[bytes]] = {}
        self._is_all_due = False

    @property
    def is_over(self) -> bool:
        return self._sweep.is_over and not self._more and not self._is_all_due

    def add(self, topics: Iterable[DeletedTopic]) -> None:
        """Remove the offsets of these topics. Offsets with another topic id stay: they belong to a
        new topic with the same name. Offsets without an id are removed."""
        for topic, topic_id in topics:
            self._more.setdefault(topic, set()).add(topic_id)

    def add_all(self) -> None:
        """Remove the offsets of all topics that are gone."""
        self._is_all_due = self._topic_ids is not None

    def go_on(self, step: Step) -> None:
        """Look at the next offsets. A sweep that is under way is not begun again, since it would
        never end where topics are deleted all the time."""
        if not self._sweep.is_over:
            self._sweep.go_on(step, self._find, lambda _: iter(()))
            return  # a step that has records changes nothing else
        if self._more:
            self._deleted, self._more = self._more, {}
        elif self._is_all_due:
            self._deleted, self._is_all_due = None, False
        else:
            return
        self._sweep.begin(self._offsets.group_ids)

    def _find(self, group_id: str, topic: str) -> Iterator[KeyValue]:
        if self._deleted is not None and topic not in self._deleted:
            return
        found = chain(
            self._offsets.newest_of_topic(group_id, topic),
            self._offsets.pending_of_topic(group_id, topic),
        )
        for partition, committed in found:
            if self._is_gone(topic, committed.topic_id):
                yield offset_record(OffsetKey(group_id, partition), None)

    def _is_gone(self, topic: str, topic_id: bytes) -> bool:
        if self._deleted is not None:
            return not any(topic_id) or topic_id in self._deleted[topic]
        assert self._topic_ids is not None  # else nobody looks all of them up
        return is_gone(self._topic_ids, topic, topic_id)
