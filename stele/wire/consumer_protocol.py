"""The bytes that consumers of a group exchange: Kafka's ConsumerProtocolSubscription and
ConsumerProtocolAssignment, versions 0 to 3.

A reader of an older version leaves out what follows the fields that it knows. So does this one with
versions above 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from stele.errors import SteleError
from stele.ids import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
VERSION: Final = 3
NO_GENERATION: Final = -1

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class ConsumerProtocolError(SteleError):
    """Bytes of another member that are no subscription or assignment."""


def version_of(data: bytes) -> int:
    """The version of a subscription or assignment. Raises ConsumerProtocolError."""
    return _Reader(data).int16()


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants and has. ``generation``: in which it got ``owned``; -1 if it is not
    known."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None

    def encode(self) -> bytes:
        return b"".join(
            (
                _INT16.pack(VERSION),
                _INT32.pack(len(self.topics)),
                *(_string(each) for each in self.topics),
                _bytes(self.user_data),
                *_partitions(self.owned),
                _INT32.pack(self.generation),
                _INT16.pack(-1) if self.rack is None else _string(self.rack),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Subscription:
        """Raises ConsumerProtocolError."""
        reader = _Reader(data)
        version = reader.int16()
        if version < 0:
            raise ConsumerProtocolError(f"a subscription of version {version}")
        topics = tuple(reader.string() for _ in reader.each())
        user_data = reader.nullable_bytes()
        owned = tuple(reader.partitions()) if version >= 1 else ()
        generation = reader.int32() if version >= 2 else NO_GENERATION
        rack = reader.nullable_string() if version >= 3 else None
        return cls(topics, user_data, owned, generation, rack)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's share."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = field(default=None)

    def encode(self, version: int = VERSION) -> bytes:
        """All versions have the same fields."""
        return b"".join(
            (_INT16.pack(version), *_partitions(self.partitions), _bytes(self.user_data))
        )

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """No bytes are an empty share. Raises ConsumerProtocolError."""
        if not data:
            return cls()
        reader = _Reader(data)
        version = reader.int16()
        if version < 0:
            raise ConsumerProtocolError(f"an assignment of version {version}")
        return cls(tuple(reader.partitions()), reader.nullable_bytes())


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> Iterator[bytes]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    yield _INT32.pack(len(by_topic))
    for topic, numbers in by_topic.items():
        yield _string(topic)
        yield struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


class _Reader:
    """Reads fields one after the other. Raises ConsumerProtocolError where they end too early."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        value: int = _INT16.unpack(self._take(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def each(self) -> range:
        """One turn for each element of an array."""
        count = self.int32()
        # An element has at least two bytes.
        if not -1 <= count <= len(self._data) // 2:
            raise ConsumerProtocolError(f"an array of {count} elements")
        return range(count)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ConsumerProtocolError("a name is missing")
        return text

    def nullable_string(self) -> str | None:
        size = self.int16()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise ConsumerProtocolError("a name is not UTF-8") from error

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._take(size)

    def partitions(self) -> Iterator[TopicPartition]:
        for _ in self.each():
            topic = self.string()
            for _ in self.each():
                yield TopicPartition(topic, self.int32())

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ConsumerProtocolError(f"{len(self._data)} bytes end within a field")
        taken = self._data[self._position : end]
        self._position = end
        return taken
