"""The records of ``__consumer_offsets``, in Kafka's layouts, byte for byte.

Keys and values begin with a version of two bytes. A key of version 0 or 1 is that of a committed
offset, and a key of version 2 that of a group of the classic protocol. As in Kafka 4.1, the value
of an offset is written as version 4, which has the topic's id, and that of a group as version 3.
Version 4 of both is flexible (KIP-482, KIP-915): a length is a varint of the length plus one, and
structures end with tagged fields. Unknown tagged fields are skipped.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker.coordinator.step import KeyValue
from stele.errors import ApiError
from stele.ids import TopicPartition
from stele.wire.kafka.primitives import ZERO_UUID, encode_uvarint, read_uvarint

_VERSION: Final = struct.Struct(">h")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET_AND_EPOCH: Final = struct.Struct(">hqi")
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_LAST_VALUE: Final = 4
_FLEXIBLE: Final = 4
_TOPIC_ID_TAG: Final = 0
_TOPIC_ID_FIELD: Final = bytes((1, _TOPIC_ID_TAG, 16))  # one tagged field, its tag, its size
_BARE_OFFSET: Final = struct.Struct(">hqiBq3s16s")  # version 4 without metadata
_BARE_START: Final = _VERSION.pack(4)
_BARE_LENGTH: Final = 1


class OffsetKey(NamedTuple):
    """The group and the partition of a committed offset."""

    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    group_id: str


class CommittedOffset(NamedTuple):
    """An offset that a group has committed for a partition."""

    offset: int
    leader_epoch: int  # -1: not known
    metadata: str
    commit_time_ms: int
    expire_time_ms: int = -1  # set where the client asked for a retention of its own
    topic_id: bytes = ZERO_UUID  # zeros: not known


class RecordedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # its metadata for the chosen protocol
    assignment: bytes


class RecordedGroup(NamedTuple):
    """A group that is stable or empty. No other state is recorded."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_time_ms: int  # since when; -1: not known
    members: tuple[RecordedMember, ...]


# ------------------------------------------------------------------------------- writing


def offset_record(key: OffsetKey, value: CommittedOffset | None) -> KeyValue:
    """A committed offset, or the tombstone of one."""
    topic, partition = key.partition
    key_bytes = b"".join(
        (
            _VERSION.pack(_OFFSET_KEY),
            _string(key.group_id),
            _string(topic),
            _INT32.pack(partition),
        )
    )
    return KeyValue(key_bytes, None if value is None else _offset_value(value))


def _offset_value(value: CommittedOffset) -> bytes:
    if value.expire_time_ms >= 0:  # which only version 1 can hold
        return b"".join(
            (
                _VERSION.pack(1),
                _INT64.pack(value.offset),
                _string(value.metadata),
                _INT64.pack(value.commit_time_ms),
                _INT64.pack(value.expire_time_ms),
            )
        )
    metadata = value.metadata.encode()
    tags = b"\x00" if value.topic_id == ZERO_UUID else _TOPIC_ID_FIELD + value.topic_id
    return b"".join(
        (
            _OFFSET_AND_EPOCH.pack(4, value.offset, value.leader_epoch),
            encode_uvarint(len(metadata) + 1),
            metadata,
            _INT64.pack(value.commit_time_ms),
            tags,
        )
    )


def group_record(group_id: str, value: RecordedGroup | None) -> KeyValue:
    """A group, or the tombstone of one."""
    key = _VERSION.pack(_GROUP_KEY) + _string(group_id)
    return KeyValue(key, None if value is None else _group_value(value))


def _group_value(value: RecordedGroup) -> bytes:
    parts = [
        _VERSION.pack(3),
        _string(value.protocol_type),
        _INT32.pack(value.generation),
        _nullable_string(value.protocol),
        _nullable_string(value.leader),
        _INT64.pack(value.state_time_ms),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _nullable_string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _nullable_string(text: str | None) -> bytes:
    return _INT16.pack(-1) if text is None else _string(text)


# ------------------------------------------------------------------------------- reading


def decode_key(data: bytes) -> OffsetKey | GroupKey:
    """Raises ValueError if the kind of the record is not known, or if it is damaged."""
    try:
        (version,) = _VERSION.unpack_from(data)
        if version not in (0, _OFFSET_KEY, _GROUP_KEY):
            raise ValueError(f"a key of version {version}")
        group_id, position = _key_string(data, _VERSION.size)
        if version == _GROUP_KEY:
            return GroupKey(group_id)
        topic, position = _key_string(data, position)
        (partition,) = _INT32.unpack_from(data, position)
    except struct.error:
        raise ValueError("a key that ends early") from None
    return OffsetKey(group_id, TopicPartition(topic, partition))


def _key_string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, position)
    position += _INT16.size
    end = position + length
    if not position <= end <= len(data):
        raise ValueError("a key that ends early")
    return data[position:end].decode(), end


def decode_offset(data: bytes) -> CommittedOffset:
    """The value of an OffsetKey. Raises ValueError."""
    # A load may read a million of them. This is the usual form, read at once.
    if len(data) == _BARE_OFFSET.size and data.startswith(_BARE_START):
        _, offset, leader_epoch, length, commit_time_ms, tags, topic_id = _BARE_OFFSET.unpack(data)
        if length == _BARE_LENGTH and tags == _TOPIC_ID_FIELD:
            return CommittedOffset(offset, leader_epoch, "", commit_time_ms, -1, topic_id)
    return _decode_any_offset(data)


def _decode_any_offset(data: bytes) -> CommittedOffset:
    reader = _Reader(data, "a committed offset", last_version=_LAST_VALUE)
    version = reader.version
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_time_ms = reader.int64()
    expire_time_ms = reader.int64() if version == 1 else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG, ZERO_UUID)
    return CommittedOffset(offset, leader_epoch, metadata, commit_time_ms, expire_time_ms, topic_id)


def decode_group(data: bytes) -> RecordedGroup:
    """The value of a GroupKey. Raises ValueError."""
    reader = _Reader(data, "a group", last_version=_LAST_VALUE)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    state_time_ms = reader.int64() if reader.version >= 2 else -1
    members = tuple(_read_member(reader) for _ in range(reader.array_length()))
    reader.tags()
    return RecordedGroup(protocol_type, generation, protocol, leader, state_time_ms, members)


def _read_member(reader: _Reader) -> RecordedMember:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if reader.version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if reader.version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.binary()
    assignment = reader.binary()
    reader.tags()
    if rebalance_timeout_ms == -1:  # versions before 1 have one timeout only
        rebalance_timeout_ms = session_timeout_ms
    return RecordedMember(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


class _Reader:
    """Reads fields in the order of the layout. Raises ValueError."""

    __slots__ = ("_data", "_flexible", "_position", "_what", "version")

    def __init__(self, data: bytes, what: str, last_version: int | None = None) -> None:
        self._data = data
        self._what = what
        self._position = 0
        self._flexible = False
        self.version = self._number(_VERSION)
        if last_version is not None:
            if not 0 <= self.version <= last_version:
                raise ValueError(f"{what} of version {self.version}")
            self._flexible = self.version >= _FLEXIBLE

    def _number(self, layout: struct.Struct) -> int:
        try:
            number: int = layout.unpack_from(self._data, self._position)[0]
        except struct.error:
            raise ValueError(f"{self._what} that ends early") from None
        self._position += layout.size
        return number

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _uvarint(self) -> int:
        try:
            number, self._position = read_uvarint(self._data, self._position)
        except (IndexError, ApiError):
            raise ValueError(f"{self._what} with a length that cannot be read") from None
        return number

    def _length(self, layout: struct.Struct) -> int:
        """The length of a string, of bytes or of an array; -1 for null."""
        return self._uvarint() - 1 if self._flexible else self._number(layout)

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise ValueError(f"{self._what} that ends early")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def string(self) -> str:
        return self._take(self._length(_INT16)).decode()  # UnicodeDecodeError is a ValueError

    def nullable_string(self) -> str | None:
        length = self._length(_INT16)
        return None if length == -1 else self._take(length).decode()

    def binary(self) -> bytes:
        return self._take(self._length(_INT32))

    def array_length(self) -> int:
        length = self._length(_INT32)
        if not 0 <= length <= len(self._data):  # an element takes more than a byte
            raise ValueError(f"{self._what} with {length} elements")
        return length

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a structure. Versions that are not flexible have none."""
        fields: dict[int, bytes] = {}
        if self._flexible:
            for _ in range(self._uvarint()):
                tag = self._uvarint()
                fields[tag] = self._take(self._uvarint())
        return fields
