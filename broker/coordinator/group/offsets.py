"""The offsets that groups have committed.

Clients are told of a commit when its record is below the high watermark, because it could still be
lost before. Until then they are told of the commit before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from broker.coordinator.group.records import CommittedOffset, OffsetKey
from stele.ids import TopicPartition


class _Change(NamedTuple):
    """A record that is not committed yet."""

    record_offset: int
    key: OffsetKey
    value: CommittedOffset | None


class _Untold:
    """What clients are told about a partition that has uncommitted changes."""

    __slots__ = ("changes", "told")

    def __init__(self, told: CommittedOffset | None) -> None:
        self.told = told
        self.changes = 0


class _GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("end", "newest", "untold")

    def __init__(self) -> None:
        # By topic and partition. Each topic has an offset.
        self.newest: dict[str, dict[int, CommittedOffset]] = {}
        # Exactly the partitions with uncommitted changes.
        self.untold: dict[TopicPartition, _Untold] = {}
        # The offset after the last change.
        self.end = -1

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        of_topic = self.newest.get(partition.topic)
        return None if of_topic is None else of_topic.get(partition.partition)

    def set(self, partition: TopicPartition, value: CommittedOffset | None) -> int:
        """Returns how many offsets there are more than before: -1, 0 or 1."""
        topic, number = partition
        of_topic = self.newest.get(topic)
        if value is not None:
            if of_topic is None:
                of_topic = self.newest[topic] = {}
            before = len(of_topic)
            of_topic[number] = value
            return len(of_topic) - before
        if of_topic is None or of_topic.pop(number, None) is None:
            return 0
        if not of_topic:
            del self.newest[topic]
        return -1

    def told(self, partition: TopicPartition) -> CommittedOffset | None:
        untold = self.untold.get(partition)
        return self.get(partition) if untold is None else untold.told

    @property
    def is_blank(self) -> bool:
        return not self.newest and not self.untold


class OffsetStore:
    """The committed offsets of all groups of a partition of ``__consumer_offsets``."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupOffsets] = {}
        # Uncommitted changes of all groups, in the order of the log.
        self._changes: deque[_Change] = deque()
        self._high_watermark = 0
        # Topic ids by themselves, so that equal ones of many records share their memory.
        self._topic_ids: dict[bytes, bytes] = {}
        # The number of offsets, by the newest records.
        self.count = 0

    # ------------------------------------------------------------------------- changes

    def replay(self, record_offset: int, key: OffsetKey, value: CommittedOffset | None) -> None:
        group = self._groups.get(key.group_id)
        if group is None:
            group = self._groups[key.group_id] = _GroupOffsets()
        if value is not None:
            topic_id = self._topic_ids.setdefault(value.topic_id, value.topic_id)
            value = value._replace(topic_id=topic_id)
        if record_offset >= self._high_watermark:
            untold = group.untold.get(key.partition)
            if untold is None:
                untold = group.untold[key.partition] = _Untold(group.get(key.partition))
            untold.changes += 1
            self._changes.append(_Change(record_offset, key, value))
        self.count += group.set(key.partition, value)
        group.end = record_offset + 1
        self._forget_if_blank(key.group_id)

    def committed(self, high_watermark: int) -> None:
        """Changes below the offset may be told from now on."""
        self._high_watermark = high_watermark
        while self._changes and self._changes[0].record_offset < high_watermark:
            _, key, value = self._changes.popleft()
            group = self._groups[key.group_id]
            untold = group.untold[key.partition]
            untold.told = value
            untold.changes -= 1
            if untold.changes == 0:
                del group.untold[key.partition]
                self._forget_if_blank(key.group_id)

    def _forget_if_blank(self, group_id: str) -> None:
        if self._groups[group_id].is_blank:
            del self._groups[group_id]

    # ------------------------------------------------------------------------- questions

    def newest(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        group = self._groups.get(group_id)
        return None if group is None else group.get(partition)

    def told(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """The newest offset that may be told."""
        group = self._groups.get(group_id)
        return None if group is None else group.told(partition)

    def all_newest(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        group = self._groups.get(group_id)
        if group is not None:
            for topic in group.newest:
                yield from self.newest_of_topic(group_id, topic)

    def newest_of_topic(
        self, group_id: str, topic: str
    ) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        group = self._groups.get(group_id)
        if group is not None:
            for number, value in group.newest.get(topic, {}).items():
                yield TopicPartition(topic, number), value

    def topics(self, group_id: str) -> list[str]:
        """The topics with offsets of the group."""
        group = self._groups.get(group_id)
        return [] if group is None else list(group.newest)

    def count_of_topic(self, group_id: str, topic: str) -> int:
        group = self._groups.get(group_id)
        return 0 if group is None else len(group.newest.get(topic, ()))

    def all_told(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        group = self._groups.get(group_id)
        if group is None:
            return
        for partition, value in self.all_newest(group_id):
            if partition not in group.untold:
                yield partition, value
        for partition, untold in group.untold.items():
            if untold.told is not None:
                yield partition, untold.told

    def end(self, group_id: str) -> int:
        """The offset after the group's last change; -1 if it has no offsets."""
        group = self._groups.get(group_id)
        return -1 if group is None else group.end

    @property
    def group_ids(self) -> list[str]:
        """The groups with offsets."""
        return list(self._groups)
