"""The records of groups of the consumer protocol (KIP-848), in Kafka's layouts, byte for byte.

The version of a key says what the record is about. Values have version 0, which is flexible.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.coordinator.assignors.spec import NO_PARTITIONS, Partitions
from broker.coordinator.group.types import MemberProtocol
from broker.coordinator.layout import (
    VERSION,
    Reader,
    compact_bytes,
    compact_int32s,
    compact_length,
    compact_string,
    compact_strings,
    key_string,
    string,
    tagged,
)
from broker.coordinator.step import KeyValue

_INT8: Final = struct.Struct(">b")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_ASSIGNMENT_HEAD: Final = struct.Struct(">iib")
_START: Final = VERSION.pack(0)
_NO_TAGS: Final = b"\0"
_HASH_TAG: Final = 0
_TIME_TAG: Final = 0
_CLASSIC_TAG: Final = 0
_EPOCHS_TAG: Final = 0

Epochs = Mapping[bytes, Mapping[int, int]]
"""Assignment epochs by topic id and partition number: the epoch in which the member was assigned
the partition (KIP-1251). No inner mapping is empty."""

_NO_EPOCHS: Final[Epochs] = {}


class Kind(enum.IntEnum):
    """The subject of a record: the version of its key."""

    GROUP = 3
    PARTITIONS = 4  # written before Kafka 4.1; has a tombstone when the group is removed
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


KINDS: Final = frozenset(Kind)
_OF_GROUP: Final = frozenset({Kind.GROUP, Kind.PARTITIONS, Kind.TARGET_EPOCH})


class ConsumerKey(NamedTuple):
    kind: Kind
    group_id: str
    name: str = ""
    """The member id, or the regular expression; empty for records of the whole group."""


class MemberState(enum.IntEnum):
    """How far a member has come towards its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions, and keeps its epoch until then."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not revoked."""
    UNKNOWN = 127
    """A state that this version does not know."""


class GroupValue(NamedTuple):
    epoch: int
    metadata_hash: int = 0
    """A hash of the subscribed topics. If it changes, there is a new assignment."""


class TargetEpoch(NamedTuple):
    epoch: int
    time_ms: int = 0
    """When the target assignment was made, by the wall clock (KIP-1263). 0: it is not known."""


class ClassicMember(NamedTuple):
    """The additional data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]  # the preferred one first


class MemberMetadata(NamedTuple):
    """The data that a member has sent."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()  # ascending
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    """None: the member uses the consumer protocol."""


class CurrentAssignment(NamedTuple):
    """The partitions of a member."""

    member_epoch: int = 0
    previous_epoch: int = 0
    """The epoch of the answer before. The member still has it if it did not get the last answer."""
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """Partitions that the member has to revoke. It owns them until it says that it does not."""
    epochs: Epochs = _NO_EPOCHS
    """For the partitions that it has owned since an epoch before ``member_epoch``. It has owned the
    others, and those of records without epochs, since ``member_epoch``."""

    def owned_since(self, topic_id: bytes, number: int) -> int | None:
        """The epoch in which the member was assigned a partition that it owns; None: it does not
        own it."""
        owned = (self.assigned, self.revoking)
        if not any(number in each.get(topic_id, ()) for each in owned):
            return None
        return self.epochs.get(topic_id, {}).get(number, self.member_epoch)


class ResolvedRegex(NamedTuple):
    topic_names: tuple[str, ...]  # ascending
    version: int  # of the metadata that it was resolved with
    time_ms: int


# ------------------------------------------------------------------------------- keys


def _key(kind: Kind, *names: str) -> bytes:
    return VERSION.pack(kind) + b"".join(map(string, names))


def decode_consumer_key(data: bytes) -> ConsumerKey:
    """Raises ValueError: it is damaged, or the key of something else."""
    try:
        kind = Kind(VERSION.unpack_from(data)[0])
        group_id, position = key_string(data, VERSION.size)
        name = "" if kind in _OF_GROUP else key_string(data, position)[0]
    except struct.error:
        raise ValueError("a key that ends early") from None
    return ConsumerKey(kind, group_id, name)


def tombstone(kind: Kind, group_id: str, name: str | None = None) -> KeyValue:
    return KeyValue(_key(kind, group_id, *(() if name is None else (name,))), None)


# ------------------------------------------------------------------------------- writing


def group_value_record(group_id: str, value: GroupValue) -> KeyValue:
    fields = {_HASH_TAG: _INT64.pack(value.metadata_hash)} if value.metadata_hash else {}
    data = _START + _INT32.pack(value.epoch) + tagged(fields)
    return KeyValue(_key(Kind.GROUP, group_id), data)


def member_record(group_id: str, member_id: str, value: MemberMetadata) -> KeyValue:
    fields = {}
    if value.classic is not None:
        fields[_CLASSIC_TAG] = b"".join(_classic(value.classic))
    data = b"".join(
        (
            _START,
            compact_string(value.instance_id),
            compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_strings(value.topic_names),
            compact_string(value.regex),
            _INT32.pack(value.rebalance_timeout_ms),
            compact_string(value.server_assignor),
            tagged(fields),
        )
    )
    return KeyValue(_key(Kind.MEMBER, group_id, member_id), data)


def _classic(member: ClassicMember) -> Iterator[bytes]:
    # A nullable structure begins with 1 if it is there, also in a tagged field.
    yield _INT8.pack(1)
    yield _INT32.pack(member.session_timeout_ms)
    yield compact_length(len(member.protocols))
    for each in member.protocols:
        yield compact_string(each.name)
        yield compact_bytes(each.metadata)
        yield _NO_TAGS
    yield _NO_TAGS


def target_epoch_record(group_id: str, value: TargetEpoch) -> KeyValue:
    fields = {_TIME_TAG: _INT64.pack(value.time_ms)} if value.time_ms else {}
    data = _START + _INT32.pack(value.epoch) + tagged(fields)
    return KeyValue(_key(Kind.TARGET_EPOCH, group_id), data)


def target_record(group_id: str, member_id: str, target: Partitions) -> KeyValue:
    data = _START + _partitions(target) + _NO_TAGS
    return KeyValue(_key(Kind.TARGET, group_id, member_id), data)


def current_record(group_id: str, member_id: str, value: CurrentAssignment) -> KeyValue:
    data = b"".join(
        (
            _START,
            _ASSIGNMENT_HEAD.pack(value.member_epoch, value.previous_epoch, value.state),
            _partitions(value.assigned, value),
            _partitions(value.revoking, value),
            _NO_TAGS,
        )
    )
    return KeyValue(_key(Kind.CURRENT, group_id, member_id), data)


def regex_record(group_id: str, regex: str, value: ResolvedRegex) -> KeyValue:
    data = b"".join(
        (
            _START,
            compact_strings(value.topic_names),
            _INT64.pack(value.version),
            _INT64.pack(value.time_ms),
            _NO_TAGS,
        )
    )
    return KeyValue(_key(Kind.REGEX, group_id, regex), data)


def _partitions(partitions: Partitions, owner: CurrentAssignment | None = None) -> bytes:
    """``owner``: the member. Its assignment epochs are written if they differ from its member
    epoch."""
    parts = [compact_length(len(partitions))]
    for topic_id in sorted(partitions):
        numbers = sorted(partitions[topic_id])
        tags = _NO_TAGS
        if owner is not None and not owner.epochs.get(topic_id, {}).keys().isdisjoint(numbers):
            known, epoch = owner.epochs[topic_id], owner.member_epoch
            tags = tagged(
                {_EPOCHS_TAG: compact_int32s([known.get(each, epoch) for each in numbers])}
            )
        parts += (topic_id, compact_int32s(numbers), tags)
    return b"".join(parts)


# ------------------------------------------------------------------------------- reading


def _reader(data: bytes, what: str) -> Reader:
    return Reader(data, what, last_version=0, flexible_from=0)


def decode_group_value(data: bytes) -> GroupValue:
    reader = _reader(data, "a consumer group")
    epoch = reader.int32()
    metadata_hash = reader.tags().get(_HASH_TAG, bytes(_INT64.size))
    if len(metadata_hash) != _INT64.size:
        raise ValueError("a consumer group with a damaged hash")
    return GroupValue(epoch, _INT64.unpack(metadata_hash)[0])


def decode_member(data: bytes) -> MemberMetadata:
    reader = _reader(data, "a member")
    value = MemberMetadata(
        reader.nullable_string(),
        reader.nullable_string(),
        reader.string(),
        reader.string(),
        reader.strings(),
        reader.nullable_string(),
        reader.int32(),
        reader.nullable_string(),
    )
    classic = reader.tags().get(_CLASSIC_TAG)
    if classic is None:
        return value
    inner = _reader(_START + classic, "a member that uses the classic protocol")
    if inner.int8() < 0:
        return value
    session_timeout_ms = inner.int32()
    protocols = tuple(_read_protocol(inner) for _ in range(inner.array_length()))
    return value._replace(classic=ClassicMember(session_timeout_ms, protocols))


def _read_protocol(reader: Reader) -> MemberProtocol:
    protocol = MemberProtocol(reader.string(), reader.binary())
    reader.tags()
    return protocol


def decode_target_epoch(data: bytes) -> TargetEpoch:
    reader = _reader(data, "the epoch of an assignment")
    epoch = reader.int32()
    time_ms = reader.tags().get(_TIME_TAG, bytes(_INT64.size))
    if len(time_ms) != _INT64.size:
        raise ValueError("an assignment with a damaged time")
    return TargetEpoch(epoch, _INT64.unpack(time_ms)[0])


def decode_target(data: bytes) -> Partitions:
    reader = _reader(data, "a target assignment")
    target = _read_partitions(reader, {})
    reader.tags()
    return target


def decode_current(data: bytes) -> CurrentAssignment:
    reader = _reader(data, "the assignment of a member")
    member_epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    epochs: dict[bytes, dict[int, int]] = {}
    value = CurrentAssignment(
        member_epoch,
        previous_epoch,
        MemberState(state) if state in set(MemberState) else MemberState.UNKNOWN,
        _read_partitions(reader, epochs),
        _read_partitions(reader, epochs),
        _earlier(epochs, member_epoch),
    )
    reader.tags()
    return value


def _earlier(epochs: Epochs, member_epoch: int) -> Epochs:
    found = {
        topic_id: {number: epoch for number, epoch in known.items() if epoch != member_epoch}
        for topic_id, known in epochs.items()
    }
    return {topic_id: known for topic_id, known in found.items() if known}


def decode_regex(data: bytes) -> ResolvedRegex:
    reader = _reader(data, "a regular expression")
    value = ResolvedRegex(reader.strings(), reader.int64(), reader.int64())
    reader.tags()
    return value


def _read_partitions(reader: Reader, epochs: dict[bytes, dict[int, int]]) -> Partitions:
    """Adds their assignment epochs to ``epochs``, where the record has any."""
    found = {}
    for _ in range(reader.array_length()):
        topic_id = reader.uuid()
        numbers = reader.int32s(reader.array_length())
        data = reader.tags().get(_EPOCHS_TAG)
        if numbers:
            found[topic_id] = frozenset(numbers)
        if data is not None:
            epochs_reader = _reader(_START + data, "the epochs of an assignment")
            known = epochs_reader.int32s(epochs_reader.array_length())
            if len(known) != len(numbers):
                raise ValueError(f"{len(numbers)} partitions with {len(known)} assignment epochs")
            epochs.setdefault(topic_id, {}).update(zip(numbers, known, strict=True))
    return found
