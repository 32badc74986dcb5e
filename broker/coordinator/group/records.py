"""The records of ``__consumer_offsets``, in Kafka's layouts, byte for byte.

Keys and values begin with a version of two bytes. A key of version 0 or 1 is that of a committed
offset, and a key of version 2 that of a group of the classic protocol. Greater versions are keys of
the consumer protocol (``broker.coordinator.group.consumer.records``) and of share groups
(``broker.coordinator.group.share.records``). As in Kafka 4.1, the value
of an offset is written as version 4, which has the topic's id, and that of a group as version 3.
Version 4 of both is flexible (KIP-482, KIP-915): a length is a varint of the length plus one, and
structures end with tagged fields. Unknown tagged fields are skipped.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from broker.coordinator.group.consumer.records import KINDS, ConsumerKey, decode_consumer_key
from broker.coordinator.group.share.records import SHARE_KINDS, ShareKey, decode_share_key
from broker.coordinator.layout import VERSION, Reader, key_string, nullable_string, string
from broker.coordinator.step import KeyValue
from stele.ids import TopicPartition
from stele.wire.kafka.primitives import ZERO_UUID, encode_uvarint

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET_AND_EPOCH: Final = struct.Struct(">hqi")
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_LAST_VALUE: Final = 4
_TOPIC_ID_TAG: Final = 0
_TOPIC_ID_FIELD: Final = bytes((1, _TOPIC_ID_TAG, 16))  # one tagged field, its tag, its size
_BARE_OFFSET: Final = struct.Struct(">hqiBq3s16s")  # version 4 without metadata
_BARE_START: Final = VERSION.pack(4)
_BARE_LENGTH: Final = 1
_METADATA_AT: Final = _OFFSET_AND_EPOCH.size
_TAGS_AT: Final = _METADATA_AT + 1 + _INT64.size
_NAMES_KEPT: Final = 100


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
            VERSION.pack(_OFFSET_KEY),
            string(key.group_id),
            string(topic),
            _INT32.pack(partition),
        )
    )
    return KeyValue(key_bytes, None if value is None else _offset_value(value))


def _offset_value(value: CommittedOffset) -> bytes:
    if value.expire_time_ms >= 0:  # which only version 1 can hold
        return b"".join(
            (
                VERSION.pack(1),
                _INT64.pack(value.offset),
                string(value.metadata),
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
    key = VERSION.pack(_GROUP_KEY) + string(group_id)
    return KeyValue(key, None if value is None else _group_value(value))


def _group_value(value: RecordedGroup) -> bytes:
    parts = [
        VERSION.pack(3),
        string(value.protocol_type),
        _INT32.pack(value.generation),
        nullable_string(value.protocol),
        nullable_string(value.leader),
        _INT64.pack(value.state_time_ms),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            string(member.member_id),
            nullable_string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


# ------------------------------------------------------------------------------- reading


def decode_key(data: bytes) -> OffsetKey | GroupKey | ConsumerKey | ShareKey:
    """Raises ValueError if the kind of the record is not known, or if it is damaged."""
    try:
        (version,) = VERSION.unpack_from(data)
        if version in KINDS:
            return decode_consumer_key(data)
        if version in SHARE_KINDS:
            return decode_share_key(data)
        if version not in (0, _OFFSET_KEY, _GROUP_KEY):
            raise ValueError(f"a key of version {version}")
        if version == _GROUP_KEY:
            return GroupKey(key_string(data, VERSION.size)[0])
        group_id, topic = _names_of_offset(data[VERSION.size : -_INT32.size])
        (partition,) = _INT32.unpack(data[-_INT32.size :])
    except struct.error:
        raise ValueError("a key that ends early") from None
    return OffsetKey(group_id, TopicPartition(topic, partition))


@lru_cache(maxsize=_NAMES_KEPT)
def _names_of_offset(data: bytes) -> tuple[str, str]:
    """Group and topic. A group has its offsets one after the other, so the last names come again,
    and equal names share their memory."""
    group_id, position = key_string(data, 0)
    topic, position = key_string(data, position)
    if position != len(data):
        raise ValueError("a key that goes on after its end")
    return group_id, topic


def decode_offset(data: bytes) -> CommittedOffset:
    """The value of an OffsetKey. Raises ValueError."""
    if _is_bare(data):
        _, offset, leader_epoch, _, commit_time_ms, _, topic_id = _BARE_OFFSET.unpack(data)
        return CommittedOffset(offset, leader_epoch, "", commit_time_ms, -1, topic_id)
    return _decode_any_offset(data)


def check_offset(data: bytes) -> None:
    """Raises ValueError unless ``decode_offset`` can read the value. A load may have a million of
    them, and nearly all of them are bare."""
    if not _is_bare(data):
        _decode_any_offset(data)


def _is_bare(data: bytes) -> bool:
    """Whether it is of the usual form: version 4, without metadata, with the topic's id."""
    return (
        len(data) == _BARE_OFFSET.size
        and data.startswith(_BARE_START)
        and data[_METADATA_AT] == _BARE_LENGTH
        and data.startswith(_TOPIC_ID_FIELD, _TAGS_AT)
    )


def _decode_any_offset(data: bytes) -> CommittedOffset:
    reader = Reader(data, "a committed offset", last_version=_LAST_VALUE)
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
    reader = Reader(data, "a group", last_version=_LAST_VALUE)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    state_time_ms = reader.int64() if reader.version >= 2 else -1
    members = tuple(_read_member(reader) for _ in range(reader.array_length()))
    reader.tags()
    return RecordedGroup(protocol_type, generation, protocol, leader, state_time_ms, members)


def _read_member(reader: Reader) -> RecordedMember:
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
