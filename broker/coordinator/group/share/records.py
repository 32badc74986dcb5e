"""The records of share groups (KIP-932), in Kafka's layouts, byte for byte.

The version of a key says what the record is about. Values have version 0, which is flexible.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.coordinator.assignors.spec import NO_PARTITIONS, Partitions
from broker.coordinator.layout import (
    VERSION,
    Reader,
    compact_int32s,
    compact_length,
    compact_string,
    compact_strings,
    key_string,
    string,
    tagged,
)
from broker.coordinator.step import KeyValue

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_GROUP_VALUE: Final = struct.Struct(">iq")
_ASSIGNMENT_HEAD: Final = struct.Struct(">iib")
_START: Final = VERSION.pack(0)
_NO_TAGS: Final = b"\0"
_TIME_TAG: Final = 0
_STABLE: Final = 0
"""The only state of a member of a share group."""


class ShareKind(enum.IntEnum):
    """The subject of a record: the version of its key."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATE_PARTITIONS = 15


SHARE_KINDS: Final = frozenset(ShareKind)
_OF_MEMBER: Final = frozenset({ShareKind.MEMBER, ShareKind.TARGET, ShareKind.CURRENT})


class ShareKey(NamedTuple):
    kind: ShareKind
    group_id: str
    member_id: str = ""
    """Empty for records of the whole group."""


class ShareGroupValue(NamedTuple):
    epoch: int
    metadata_hash: int
    """A hash of the subscribed topics. If it changes, there is a new assignment."""


class ShareTargetEpoch(NamedTuple):
    epoch: int
    time_ms: int = 0
    """When the target assignment was made, by the wall clock. 0: it is not known."""


class ShareMemberMetadata(NamedTuple):
    """The data that a member has sent."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()  # ascending


class ShareAssignment(NamedTuple):
    """The partitions of a member."""

    member_epoch: int = 0
    previous_epoch: int = 0
    """The epoch of the answer before. The member still has it if it did not get the last answer."""
    assigned: Partitions = NO_PARTITIONS


class StatePartitions(NamedTuple):
    """The partitions whose state the share coordinator keeps for the group."""

    initializing: Partitions = NO_PARTITIONS
    initialized: Partitions = NO_PARTITIONS
    """Only these are assigned."""
    deleting: frozenset[bytes] = frozenset()
    """Topics whose state is being deleted."""
    names: Mapping[bytes, str] = {}
    """The names of all these topics, by the topics' ids."""


# ------------------------------------------------------------------------------- keys


def _key(kind: ShareKind, *names: str) -> bytes:
    return VERSION.pack(kind) + b"".join(map(string, names))


def decode_share_key(data: bytes) -> ShareKey:
    """Raises ValueError: it is damaged, or the key of something else."""
    try:
        kind = ShareKind(VERSION.unpack_from(data)[0])
        group_id, position = key_string(data, VERSION.size)
        member_id = ""
        if kind in _OF_MEMBER:
            member_id, position = key_string(data, position)
    except struct.error:
        raise ValueError("a key that ends early") from None
    if position != len(data):
        raise ValueError("a key that goes on after its end")
    return ShareKey(kind, group_id, member_id)


def share_tombstone(kind: ShareKind, group_id: str, member_id: str | None = None) -> KeyValue:
    return KeyValue(_key(kind, group_id, *(() if member_id is None else (member_id,))), None)


# ------------------------------------------------------------------------------- writing


def share_group_record(group_id: str, value: ShareGroupValue) -> KeyValue:
    return KeyValue(_key(ShareKind.GROUP, group_id), _START + _GROUP_VALUE.pack(*value) + _NO_TAGS)


def share_member_record(group_id: str, member_id: str, value: ShareMemberMetadata) -> KeyValue:
    data = b"".join(
        (
            _START,
            compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_strings(value.topic_names),
            _NO_TAGS,
        )
    )
    return KeyValue(_key(ShareKind.MEMBER, group_id, member_id), data)


def share_target_epoch_record(group_id: str, value: ShareTargetEpoch) -> KeyValue:
    fields = {_TIME_TAG: _INT64.pack(value.time_ms)} if value.time_ms else {}
    data = _START + _INT32.pack(value.epoch) + tagged(fields)
    return KeyValue(_key(ShareKind.TARGET_EPOCH, group_id), data)


def share_target_record(group_id: str, member_id: str, target: Partitions) -> KeyValue:
    data = _START + _partitions(target) + _NO_TAGS
    return KeyValue(_key(ShareKind.TARGET, group_id, member_id), data)


def share_current_record(group_id: str, member_id: str, value: ShareAssignment) -> KeyValue:
    head = _ASSIGNMENT_HEAD.pack(value.member_epoch, value.previous_epoch, _STABLE)
    data = _START + head + _partitions(value.assigned) + _NO_TAGS
    return KeyValue(_key(ShareKind.CURRENT, group_id, member_id), data)


def state_partitions_record(group_id: str, value: StatePartitions) -> KeyValue:
    parts = [_START, _partitions(value.initializing, value.names)]
    parts += [_partitions(value.initialized, value.names), compact_length(len(value.deleting))]
    for topic_id in sorted(value.deleting):
        parts += (topic_id, compact_string(value.names[topic_id]), _NO_TAGS)
    parts.append(_NO_TAGS)
    return KeyValue(_key(ShareKind.STATE_PARTITIONS, group_id), b"".join(parts))


def _partitions(partitions: Partitions, names: Mapping[bytes, str] | None = None) -> bytes:
    """With ``names``, the names of the topics follow their ids."""
    parts = [compact_length(len(partitions))]
    for topic_id in sorted(partitions):
        parts.append(topic_id)
        if names is not None:
            parts.append(compact_string(names[topic_id]))
        parts += (compact_int32s(sorted(partitions[topic_id])), _NO_TAGS)
    return b"".join(parts)


# ------------------------------------------------------------------------------- reading


def _reader(data: bytes, what: str) -> Reader:
    return Reader(data, what, last_version=0, flexible_from=0)


def decode_share_group(data: bytes) -> ShareGroupValue:
    reader = _reader(data, "a share group")
    value = ShareGroupValue(reader.int32(), reader.int64())
    reader.tags()
    return value


def decode_share_member(data: bytes) -> ShareMemberMetadata:
    reader = _reader(data, "a member of a share group")
    value = ShareMemberMetadata(
        reader.nullable_string(), reader.string(), reader.string(), reader.strings()
    )
    reader.tags()
    return value


def decode_share_target_epoch(data: bytes) -> ShareTargetEpoch:
    reader = _reader(data, "the epoch of a share group's assignment")
    epoch = reader.int32()
    time_ms = reader.tags().get(_TIME_TAG, bytes(_INT64.size))
    if len(time_ms) != _INT64.size:
        raise ValueError("a share group's assignment with a damaged time")
    return ShareTargetEpoch(epoch, _INT64.unpack(time_ms)[0])


def decode_share_target(data: bytes) -> Partitions:
    reader = _reader(data, "a target assignment of a share group")
    target = _read_partitions(reader)
    reader.tags()
    return target


def decode_share_current(data: bytes) -> ShareAssignment:
    reader = _reader(data, "the assignment of a share group's member")
    member_epoch, previous_epoch = reader.int32(), reader.int32()
    reader.int8()  # the state: there is only one
    value = ShareAssignment(member_epoch, previous_epoch, _read_partitions(reader))
    reader.tags()
    return value


def decode_state_partitions(data: bytes) -> StatePartitions:
    reader = _reader(data, "the partitions of a share group")
    names: dict[bytes, str] = {}
    initializing = _read_partitions(reader, names)
    initialized = _read_partitions(reader, names)
    deleting = set()
    for _ in range(reader.array_length()):
        topic_id = reader.uuid()
        names[topic_id] = reader.string()
        reader.tags()
        deleting.add(topic_id)
    reader.tags()
    return StatePartitions(initializing, initialized, frozenset(deleting), names)


def _read_partitions(reader: Reader, names: dict[bytes, str] | None = None) -> Partitions:
    """With ``names``, the names of the topics follow their ids, and are added to it."""
    found = {}
    for _ in range(reader.array_length()):
        topic_id = reader.uuid()
        if names is not None:
            names[topic_id] = reader.string()
        numbers = frozenset(reader.int32s(reader.array_length()))
        reader.tags()
        if numbers:
            found[topic_id] = numbers
    return found
