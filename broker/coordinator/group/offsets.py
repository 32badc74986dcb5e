"""The offsets that groups have committed.

Clients see a commit when its record is below the high watermark, because it could still be lost
before. Until then they see the commit before it. The offsets of a transaction are pending until a
marker commits them (``pending_offsets``). Clients see them when the marker is below the high
watermark.

The store keeps the values of records as they are. Most of them are never read, and a million
objects would cost the cyclic collector, a load and the memory more than a million byte strings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from broker.coordinator.group.pending_offsets import PendingOffsets
from broker.coordinator.group.records import (
    CommittedOffset,
    OffsetKey,
    check_offset,
    decode_offset,
)
from stele.ids import TopicPartition


class _Change(NamedTuple):
    """A record that is not committed yet."""

    record_offset: int
    key: OffsetKey
    value: bytes | None


class _Untold:
    """The answer about a partition that has uncommitted changes."""

    __slots__ = ("changes", "told")

    def __init__(self, told: bytes | None) -> None:
        self.told = told
        self.changes = 0


class _GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("end", "newest", "untold")

    def __init__(self) -> None:
        # By topic and partition. Each topic has an offset.
        self.newest: dict[str, dict[int, bytes]] = {}
        # Exactly the partitions with uncommitted changes.
        self.untold: dict[TopicPartition, _Untold] = {}
        # The offset after the last change.
        self.end = -1

    def get(self, partition: TopicPartition) -> bytes | None:
        of_topic = self.newest.get(partition.topic)
        return None if of_topic is None else of_topic.get(partition.partition)

    def set(self, partition: TopicPartition, value: bytes | None) -> int:
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

    def told(self, partition: TopicPartition) -> bytes | None:
        untold = self.untold.get(partition)
        return self.get(partition) if untold is None else untold.told

    @property
    def is_blank(self) -> bool:
        return not self.newest and not self.untold


def _decoded(value: bytes | None) -> CommittedOffset | None:
    return None if value is None else decode_offset(value)


class OffsetStore:
    """The committed offsets of all groups of a partition of ``__consumer_offsets``."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupOffsets] = {}
        # Uncommitted changes of all groups, in the order of the log.
        self._changes: deque[_Change] = deque()
        self._high_watermark = 0
        # The number of offsets, by the newest records.
        self.count = 0
        # Of open transactions. Everything else here is about offsets that count.
        self._pending = PendingOffsets()

    # ------------------------------------------------------------------------- changes

    def replay(self, record_offset: int, key: OffsetKey, value: bytes | None) -> None:
        """The record of a committed offset, or the tombstone of one. Raises ValueError."""
        if value is not None:
            check_offset(value)
            self._pending.supersede(record_offset, key)
        else:
            self._pending.remove(key)
        self._change(record_offset, key, value)

    def replay_pending(
        self, record_offset: int, producer_id: int, key: OffsetKey, value: bytes | None
    ) -> None:
        """The record of an offset in an open transaction. Raises ValueError."""
        if value is None:
            raise ValueError("a transaction that deletes an offset")
        check_offset(value)
        self._pending.add(record_offset, producer_id, key, value)

    def end_transaction(
        self, marker_offset: int, producer_id: int, *, commits: bool
    ) -> list[OffsetKey]:
        """The marker ends the producer's transaction. Returns what counts from now on. An offset
        does not count if a later record of the partition has another one, as in Kafka."""
        counting = []
        for key, (record_offset, value) in self._pending.end(producer_id).items():
            if commits and value is not None:
                self._pending.supersede(record_offset, key)
                self._change(marker_offset, key, value)
                counting.append(key)
        return counting

    def _change(self, record_offset: int, key: OffsetKey, value: bytes | None) -> None:
        """A partition's offset from the record on."""
        group = self._groups.get(key.group_id)
        if group is None:
            group = self._groups[key.group_id] = _GroupOffsets()
        if record_offset >= self._high_watermark:
            untold = group.untold.get(key.partition)
            if untold is None:
                untold = group.untold[key.partition] = _Untold(group.get(key.partition))
            untold.changes += 1
            self._changes.append(_Change(record_offset, key, value))
        self.count += group.set(key.partition, value)
        group.end = record_offset + 1
        if value is None:
            self._forget_if_blank(key.group_id)

    def committed(self, high_watermark: int) -> None:
        """Clients may see changes below the offset from now on."""
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
        return None if group is None else _decoded(group.get(partition))

    def told(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """The newest offset that clients may see."""
        group = self._groups.get(group_id)
        return None if group is None else _decoded(group.told(partition))

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
                yield TopicPartition(topic, number), decode_offset(value)

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for the partition."""
        return self._pending.has(OffsetKey(group_id, partition))

    def pending_of_topic(
        self, group_id: str, topic: str
    ) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """The offsets of open transactions that may count later."""
        for partition, value in self._pending.of_topic(group_id, topic):
            if value is not None:
                yield partition, decode_offset(value)

    def has_any(self, group_id: str) -> bool:
        """Whether the group has offsets, or open transactions have some for it."""
        return bool(self.topics(group_id))

    def has_trace(self, group_id: str) -> bool:
        """Whether the log has records of the group's offsets, be it tombstones."""
        return self.end(group_id) != -1 or self.has_any(group_id)

    def partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """The partitions with an offset, pending or not, each once."""
        for topic in self.topics(group_id):
            group = self._groups.get(group_id)
            numbers = dict.fromkeys(() if group is None else group.newest.get(topic, ()))
            numbers |= dict.fromkeys(
                each.partition for each, _ in self._pending.of_topic(group_id, topic)
            )
            for number in numbers:
                yield TopicPartition(topic, number)

    def topics(self, group_id: str) -> list[str]:
        """The topics with offsets of the group, pending or not."""
        group = self._groups.get(group_id)
        topics = [] if group is None else list(group.newest)
        return list(dict.fromkeys(topics + self._pending.topics(group_id)))

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
                yield partition, decode_offset(untold.told)

    def end(self, group_id: str) -> int:
        """The offset after the group's last change; -1 if it has no offsets."""
        group = self._groups.get(group_id)
        return -1 if group is None else group.end

    @property
    def group_ids(self) -> list[str]:
        """The groups with offsets, pending or not."""
        return list(dict.fromkeys([*self._groups, *self._pending.group_ids]))
