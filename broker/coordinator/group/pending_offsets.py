"""The offsets that open transactions have committed: they count when the transaction is committed.

A transaction belongs to a producer id, which has one open transaction at most. Its offsets are of
any groups of the partition of ``__consumer_offsets``, mostly of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.coordinator.group.records import OffsetKey
from stele.ids import TopicPartition


class Pending(NamedTuple):
    """An offset of an open transaction."""

    record_offset: int
    value: bytes | None
    """None: a later record of the partition has another offset, so this one will not count. The
    order of the records decides, and not that of the markers: compaction keeps the last record."""


class PendingOffsets:
    """The offsets of all open transactions of a partition of ``__consumer_offsets``."""

    def __init__(self) -> None:
        # By producer, in the order of the records. No inner mapping is empty.
        self._of_producer: dict[int, dict[OffsetKey, Pending]] = {}
        # The producers with an offset for the partition: by group, topic, partition. Says the same
        # as `_of_producer`.
        self._producers: dict[str, dict[str, dict[int, list[int]]]] = {}

    # ------------------------------------------------------------------------- changes

    def add(self, record_offset: int, producer_id: int, key: OffsetKey, value: bytes) -> None:
        """A record of an open transaction."""
        of_producer = self._of_producer.setdefault(producer_id, {})
        if of_producer.pop(key, None) is None:
            topic, number = key.partition
            of_topic = self._producers.setdefault(key.group_id, {}).setdefault(topic, {})
            of_topic.setdefault(number, []).append(producer_id)
        of_producer[key] = Pending(record_offset, value)

    def supersede(self, record_offset: int, key: OffsetKey) -> None:
        """The record at the offset has an offset that counts: those of earlier records do not."""
        for producer_id in self._found(key):
            of_producer = self._of_producer[producer_id]
            if of_producer[key].record_offset < record_offset:
                of_producer[key] = of_producer[key]._replace(value=None)

    def remove(self, key: OffsetKey) -> None:
        """The offsets of a partition are deleted, also those of transactions."""
        for producer_id in self._found(key):
            self._drop(producer_id, key)

    def end(self, producer_id: int) -> dict[OffsetKey, Pending]:
        """A marker ends the transaction: its pending offsets."""
        ended = dict(self._of_producer.get(producer_id, {}))
        for key in ended:
            self._drop(producer_id, key)
        return ended

    def _drop(self, producer_id: int, key: OffsetKey) -> None:
        of_producer = self._of_producer[producer_id]
        del of_producer[key]
        if not of_producer:
            del self._of_producer[producer_id]
        (topic, number), of_group = key.partition, self._producers[key.group_id]
        of_group[topic][number].remove(producer_id)
        if not of_group[topic][number]:
            del of_group[topic][number]
        if not of_group[topic]:
            del of_group[topic]
        if not of_group:
            del self._producers[key.group_id]

    # ------------------------------------------------------------------------- questions

    def _found(self, key: OffsetKey) -> list[int]:
        topic, number = key.partition
        return list(self._producers.get(key.group_id, {}).get(topic, {}).get(number, ()))

    def has(self, key: OffsetKey) -> bool:
        """Whether an open transaction has an offset for the group and partition."""
        return bool(self._found(key))

    def topics(self, group_id: str) -> list[str]:
        """The topics with pending offsets of the group."""
        return list(self._producers.get(group_id, ()))

    def of_topic(self, group_id: str, topic: str) -> Iterator[tuple[TopicPartition, bytes | None]]:
        """The partitions with pending offsets, and the value of each of them."""
        for number, producers in self._producers.get(group_id, {}).get(topic, {}).items():
            partition = TopicPartition(topic, number)
            for producer_id in producers:
                pending = self._of_producer[producer_id][OffsetKey(group_id, partition)]
                yield partition, pending.value

    @property
    def group_ids(self) -> list[str]:
        """The groups with pending offsets."""
        return list(self._producers)
