"""The partitions of a transaction: a set that costs little to add to, and little to record.

Each added partition needs a record with all of them, and a transaction may have many thousand. So
the numbers of a topic are kept in their recorded form, and only a topic that gets a partition is
encoded anew.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from broker.coordinator.layout import compact_length, compact_string, tagged
from stele.ids import TopicPartition

_INT32: Final = struct.Struct(">i")
_FEW: Final = 16
"""Up to this many numbers are inserted one by one. Each insertion copies the topic's numbers."""


class TopicNumbers:
    """The partitions of one topic. Never changed."""

    __slots__ = ("flexible", "packed", "topic")

    def __init__(self, topic: str, packed: bytes) -> None:
        """``packed``: the numbers as they are recorded, in rising order."""
        self.topic = topic
        self.packed = packed
        count = len(packed) // _INT32.size
        self.flexible = compact_string(topic) + compact_length(count) + packed + tagged({})
        """As the flexible version of a record has them."""

    def __len__(self) -> int:
        return len(self.packed) // _INT32.size

    def __iter__(self) -> Iterator[int]:
        return (number for (number,) in _INT32.iter_unpack(self.packed))

    def __contains__(self, number: int) -> bool:
        at = _INT32.size * _place(self.packed, number)
        return self.packed[at : at + _INT32.size] == _INT32.pack(number)

    def with_all(self, numbers: set[int]) -> TopicNumbers:
        """A copy with these numbers added. The caller adds only numbers that are missing."""
        if len(numbers) > _FEW:
            return TopicNumbers(self.topic, _pack({*self, *numbers}))
        packed = bytearray(self.packed)
        for number in numbers:
            at = _INT32.size * _place(packed, number)
            packed[at:at] = _INT32.pack(number)
        return TopicNumbers(self.topic, bytes(packed))


def _place(packed: bytes | bytearray, number: int) -> int:
    """Which of the numbers it is, or would be."""
    return bisect_left(
        range(len(packed) // _INT32.size),
        number,
        key=lambda place: _INT32.unpack_from(packed, _INT32.size * place)[0],
    )


def _pack(numbers: set[int]) -> bytes:
    return struct.pack(f">{len(numbers)}i", *sorted(numbers))


class TransactionPartitions:
    """Partitions in order, each once. Never changed."""

    __slots__ = ("_count", "name_bytes", "topics")

    def __init__(self, topics: tuple[TopicNumbers, ...], count: int, name_bytes: int) -> None:
        """Made by ``of`` and ``with_all``."""
        self.topics = topics
        """In the order of their names. Each topic has at least one partition."""
        self._count = count
        self.name_bytes = name_bytes
        """The lengths of the topics' names, once for each partition."""

    @classmethod
    def of(cls, partitions: Iterable[TopicPartition]) -> TransactionPartitions:
        return cls((), 0, 0).with_all(partitions)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TopicPartition]:
        return (TopicPartition(each.topic, number) for each in self.topics for number in each)

    def __contains__(self, partition: TopicPartition) -> bool:
        place = bisect_left(self.topics, partition.topic, key=_name)
        return place < len(self.topics) and (
            self.topics[place].topic == partition.topic
            and partition.partition in self.topics[place]
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionPartitions) and self._packed == other._packed

    @property
    def _packed(self) -> list[tuple[str, bytes]]:
        return [(each.topic, each.packed) for each in self.topics]

    def __hash__(self) -> int:
        return hash((self._count, self.name_bytes))

    def __repr__(self) -> str:
        return f"TransactionPartitions({', '.join(map(str, self))})"

    def with_all(self, partitions: Iterable[TopicPartition]) -> TransactionPartitions:
        """A copy with these partitions added. The caller adds only partitions that are missing."""
        added: dict[str, set[int]] = {}
        for topic, number in partitions:
            added.setdefault(topic, set()).add(number)
        topics, count, name_bytes = list(self.topics), self._count, self.name_bytes
        for topic, numbers in added.items():
            place = bisect_left(topics, topic, key=_name)
            if place < len(topics) and topics[place].topic == topic:
                topics[place] = topics[place].with_all(numbers)
            else:
                topics.insert(place, TopicNumbers(topic, _pack(numbers)))
            count += len(numbers)
            name_bytes += len(numbers) * len(topic)
        return TransactionPartitions(tuple(topics), count, name_bytes)


_name = attrgetter("topic")

NO_PARTITIONS: Final = TransactionPartitions.of(())
