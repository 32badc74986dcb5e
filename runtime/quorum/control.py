"""The quorum's control records, in Kafka's layout: the leader, and the voters.

LeaderChangeMessage, KRaftVersionRecord and VotersRecord (KIP-595, KIP-853), all of version 0:
Kafka's ControlRecordUtils reads each of them as that. Logs may also hold LeaderChangeMessages of
version 1, which name directories; nothing here depends on their content. All are "flexible": a
length is a varint of one more, and structures end with their tagged fields. A voter's features
stand in such a field. Kafka does not have this field and skips it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from raft.messages import Batch, LeaderChange, VotersChange
from raft.quorum import NO_DIRECTORY, FeatureLevels, ReplicaKey, Voter, VoterSet
from runtime.config.addresses import NamedAddress, endpoint_text, parse_endpoint
from stele.errors import SteleError
from stele.wire.batch import BatchBuilder, decode
from stele.wire.control_records import ControlType, control_key, control_type
from stele.wire.kafka.primitives import MalformedMessageError, encode_uvarint, read_uvarint
from stele.world import Buffer

KRAFT_VERSION: Final = 1
"""The version in which voters can change; the only one here."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PORT: Final = struct.Struct(">H")
_VERSIONS: Final = struct.Struct(">hh")  # of the protocol: from, to
_LEVELS: Final = struct.Struct(">hh")  # of a feature: from, to
_NO_TAGS: Final = b"\0"
_FEATURES_TAG: Final = 1000  # of a voter; Kafka counts its own tags from 0


class ControlRecordError(SteleError):
    """A control record that no sound controller writes."""


def encode_control(batch: Batch, change: LeaderChange | VotersChange, time_ms: int) -> bytes:
    """The control batch of a change, at the batch's place in the log."""
    if isinstance(change, LeaderChange):
        records = [(ControlType.LEADER_CHANGE, _leader_change(change))]
    else:
        records = [(ControlType.KRAFT_VOTERS, encode_voters(change.voters))]
        if change.is_first:
            records.insert(0, (ControlType.KRAFT_VERSION, encode_version()))
    builder = BatchBuilder(batch.base_offset)
    for kind, value in records:
        builder.append(control_key(kind), value, timestamp_ms=time_ms)
    return bytes(builder.build(leader_epoch=batch.epoch, is_control=True))


def voters_in(data: Buffer, position: int) -> VoterSet | None:
    """The voters that a sound control batch names; None if it is about something else.

    Raises ControlRecordError: this replica cannot know who votes.
    """
    found = None
    for record in decode(data, position):
        kind = control_type(record.key)
        if kind is ControlType.KRAFT_VERSION:
            _check_version(record.value or b"")
        elif kind is ControlType.KRAFT_VOTERS:
            found = decode_voters(record.value or b"")
    return found


# ------------------------------------------------------------------------------- records


def _leader_change(change: LeaderChange) -> bytes:
    value = bytearray(_INT16.pack(0) + _INT32.pack(change.leader_id))
    for voters in (change.voters, change.granting_voters):
        value += _size(len(voters))
        for voter in voters:
            value += _INT32.pack(voter) + _NO_TAGS
    return bytes(value + _NO_TAGS)


def encode_version() -> bytes:
    """The KRaftVersionRecord that goes before the voters of a snapshot."""
    return _INT16.pack(0) + _INT16.pack(KRAFT_VERSION) + _NO_TAGS


def _check_version(value: bytes) -> None:
    if value != encode_version():
        raise ControlRecordError(
            f"the quorum's protocol is of a version that this node does not know: {value.hex()}"
        )


def encode_voters(voters: VoterSet) -> bytes:
    """The VotersRecord."""
    value = bytearray(_INT16.pack(0)) + _size(len(voters.voters))
    for voter in voters.voters:
        value += _INT32.pack(voter.key.id) + voter.key.directory_id
        value += _endpoints(voter.endpoint)
        value += _VERSIONS.pack(0, KRAFT_VERSION) + _NO_TAGS
        value += _features(voter.features)
    return bytes(value + _NO_TAGS)


def _endpoints(endpoint: str) -> bytes:
    listeners = parse_endpoint(endpoint)
    assert listeners is not None  # checked where it came in
    value = bytearray(_size(len(listeners)))
    for each in listeners:
        for text in (each.name.encode(), each.host.encode()):
            value += _size(len(text)) + text
        value += _PORT.pack(each.port) + _NO_TAGS
    return bytes(value)


def _features(features: Sequence[FeatureLevels]) -> bytes:
    """A voter's tagged fields."""
    if not features:
        return _NO_TAGS
    value = bytearray(_size(len(features)))
    for name, *levels in features:
        text = name.encode()
        value += _size(len(text)) + text + _LEVELS.pack(*levels) + _NO_TAGS
    return encode_uvarint(1) + encode_uvarint(_FEATURES_TAG) + encode_uvarint(len(value)) + value


def decode_voters(value: bytes) -> VoterSet:
    """Raises ControlRecordError."""
    try:
        return _Reader(value).voters()
    except (IndexError, ValueError, MalformedMessageError) as error:
        raise ControlRecordError(f"not a record of voters: {error}") from error


class _Reader:
    """Reads one VotersRecord, or what a tag of it holds.

    Raises IndexError, ValueError or MalformedMessageError.
    """

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._position = 0

    def voters(self) -> VoterSet:
        (version,) = self._take(_INT16)
        if version != 0:
            raise ValueError(f"version {version}")
        voters = [self._voter() for _ in range(self._size())]
        self._tags()
        self._check_end()
        if len({voter.key.id for voter in voters}) != len(voters):
            raise ValueError("a voter is named twice")
        return VoterSet(voters)

    def _voter(self) -> Voter:
        (voter_id,) = self._take(_INT32)
        key = ReplicaKey(voter_id, self._bytes(len(NO_DIRECTORY)))
        endpoint = self._endpoint()
        self._take(_VERSIONS)
        self._tags()
        features = self._tags().get(_FEATURES_TAG)
        return Voter(
            key,
            endpoint,
            () if features is None else _Reader(features).features(),
        )

    def features(self) -> tuple[FeatureLevels, ...]:
        found = tuple(self._feature() for _ in range(self._size()))
        self._check_end()
        return found

    def _feature(self) -> FeatureLevels:
        name = self._bytes(self._size()).decode()
        least, greatest = self._take(_LEVELS)
        self._tags()
        return name, least, greatest

    def _check_end(self) -> None:
        if self._position != len(self._value):
            raise ValueError(f"{len(self._value) - self._position} bytes behind the end")

    def _endpoint(self) -> str:
        listeners = tuple(self._listener() for _ in range(self._size()))
        text = endpoint_text(listeners)
        if parse_endpoint(text) != listeners:
            raise ValueError(f"{text!r} are no listeners")
        return text

    def _listener(self) -> NamedAddress:
        name = self._bytes(self._size()).decode()
        host = self._bytes(self._size()).decode()
        (port,) = self._take(_PORT)
        self._tags()
        return NamedAddress(name, host, port)

    def _tags(self) -> dict[int, bytes]:
        return {self._varint(): self._bytes(self._varint()) for _ in range(self._varint())}

    def _size(self) -> int:
        size = self._varint() - 1
        if size < 0:
            raise ValueError("a length is missing")
        return size

    def _varint(self) -> int:
        number, self._position = read_uvarint(self._value, self._position)
        return number

    def _take(self, layout: struct.Struct) -> Sequence[int]:
        return layout.unpack(self._bytes(layout.size))

    def _bytes(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._value):
            raise ValueError(f"it ends after {len(self._value)} bytes")
        start, self._position = self._position, end
        return self._value[start:end]


def _size(count: int) -> bytes:
    """The length of a compact array or string."""
    return encode_uvarint(count + 1)
