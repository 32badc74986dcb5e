"""Which offsets and groups are removed, and how: some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker.coordinator.group.classic import ClassicGroup
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import (
    CommittedOffset,
    OffsetKey,
    group_record,
    offset_record,
)
from broker.coordinator.group.types import GroupState
from broker.coordinator.step import KeyValue, Step

_GROUPS_A_STEP: Final = 20
_BYTES_A_STEP: Final = 128 * 1024


class Sweep:
    """Goes through groups and writes tombstones."""

    def __init__(self) -> None:
        self._ahead: deque[str] = deque()

    def begin(self, group_ids: Iterable[str]) -> None:
        self._ahead = deque(group_ids)

    @property
    def is_over(self) -> bool:
        return not self._ahead

    def go_on(self, step: Step, find: Callable[[str], Iterator[KeyValue]]) -> None:
        """Look at the next groups. A group that needs tombstones is looked at again after them."""
        for number in range(_GROUPS_A_STEP):
            if not self._ahead:
                break
            records = _some_of(find(self._ahead[0]))
            if records:
                if number == 0:  # else this step has changed the sweep, so it must not have records
                    step.records += records
                break
            self._ahead.popleft()


def _some_of(records: Iterator[KeyValue]) -> list[KeyValue]:
    """The first records, up to a size that fits into a batch."""
    taken: list[KeyValue] = []
    size = 0
    for record in records:
        taken.append(record)
        size += len(record.key)
        if size >= _BYTES_A_STEP:
            break
    return taken


def expired(
    group: ClassicGroup, offsets: OffsetStore, now_ms: int, retention_ms: int
) -> Iterator[KeyValue]:
    """Tombstones for a group's offsets that were not used for the retention time, and for the group
    if it has no members and no other offsets (KIP-211)."""
    is_all = True
    for partition, committed in offsets.all_newest(group.group_id):
        if _is_expired(group, partition.topic, committed, now_ms, retention_ms):
            yield offset_record(OffsetKey(group.group_id, partition), None)
        else:
            is_all = False
    if is_all and group.is_empty and not group.is_used:
        yield group_record(group.group_id, None)


def _is_expired(
    group: ClassicGroup, topic: str, committed: CommittedOffset, now_ms: int, retention_ms: int
) -> bool:
    if group.is_subscribed_to(topic):
        return False
    if not group.is_empty and not (group.has_consumers and group.state is GroupState.STABLE):
        return False  # the topics that the members use are not known
    if committed.expire_time_ms >= 0:
        return now_ms >= committed.expire_time_ms
    used_ms = committed.commit_time_ms
    if group.is_empty:
        used_ms = max(used_ms, group.state_time_ms)  # the last member has left then
    return now_ms - used_ms >= retention_ms


class DeletedTopics:
    """Deleted topics whose offsets are not removed yet."""

    def __init__(self) -> None:
        self._ids: dict[str, set[bytes]] = {}

    def add(self, topic: str, topic_id: bytes) -> None:
        self._ids.setdefault(topic, set()).add(topic_id)

    def clear(self) -> None:
        self._ids.clear()

    def offsets_of(self, group_id: str, offsets: OffsetStore) -> Iterator[KeyValue]:
        """Tombstones for a group's offsets of these topics. Offsets with another topic id stay:
        they belong to a new topic with the same name. Offsets without an id are removed."""
        for topic, ids in self._ids.items():
            for partition, committed in offsets.newest_of_topic(group_id, topic):
                if not any(committed.topic_id) or committed.topic_id in ids:
                    yield offset_record(OffsetKey(group_id, partition), None)
