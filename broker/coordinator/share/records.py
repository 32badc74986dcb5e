"""The records of ``__share_group_state``, in Kafka's layouts, byte for byte (KIP-932).

The version of a key says what the record is: a snapshot (0), which has the whole state of a share
partition, or an update (1), which has what has changed since. Both keys name the share partition.
The tombstone of a snapshot deletes the state. Values have version 0, which is flexible.

Two tagged fields are not Kafka's, and Kafka skips them: why a record is archiving, and the plan of
dead letters (``broker.coordinator.share.letter_plans``).
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from broker.coordinator.layout import (
    VERSION,
    Reader,
    compact_length,
    key_string,
    string,
    tagged,
)
from broker.coordinator.share.letter_plans import decode_letters, encode_letters
from broker.coordinator.share.types import NO_COUNT, NO_EPOCH, NO_START, ShareState, StateKey
from broker.coordinator.step import KeyValue
from broker.share.values import LetterPlan, RecordState, StateBatch
from stele.wire.kafka.schema import FIRST_OWN_TAG

_INT32: Final = struct.Struct(">i")
_KEY_TAIL: Final = struct.Struct(">16si")
_SNAPSHOT_HEAD: Final = struct.Struct(">iiiqqq")
_UPDATE_HEAD: Final = struct.Struct(">iiq")
_BATCH: Final = struct.Struct(">qqbh")
_NO_TAGS: Final = tagged({})
_REJECTED_TAG: Final = FIRST_OWN_TAG
_REJECTED: Final = tagged({_REJECTED_TAG: b""})
_LETTERS_TAG: Final = FIRST_OWN_TAG
_START: Final = VERSION.pack(0)
_COUNT_TAG: Final = 0


class StateKind(enum.IntEnum):
    """The version of a key."""

    SNAPSHOT = 0
    UPDATE = 1


class StateUpdate(NamedTuple):
    """What has changed in a state."""

    snapshot_epoch: int
    """The epoch of the snapshot that the update continues."""
    leader_epoch: int = NO_EPOCH  # NO_EPOCH: the same
    start_offset: int = NO_START  # NO_START: the same
    complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()
    letters: LetterPlan | None = None  # None: the same


# ------------------------------------------------------------------------------- keys


def _key(kind: StateKind, key: StateKey) -> bytes:
    tail = _KEY_TAIL.pack(key.topic_id, key.partition)
    return VERSION.pack(kind) + string(key.group_id) + tail


def decode_state_key(data: bytes) -> tuple[StateKind, StateKey]:
    """Raises ValueError: it is damaged, or the key of something else."""
    try:
        kind = StateKind(VERSION.unpack_from(data)[0])
        group_id, position = key_string(data, VERSION.size)
        topic_id, partition = _KEY_TAIL.unpack(data[position:])
    except struct.error:
        raise ValueError("a key that does not end where it should") from None
    return kind, StateKey(group_id, topic_id, partition)


# ------------------------------------------------------------------------------- writing


def snapshot_record(key: StateKey, state: ShareState) -> KeyValue:
    head = _SNAPSHOT_HEAD.pack(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.create_ms,
        state.write_ms,
    )
    value = _START + head + _batches(state.batches) + _tags(state)
    return KeyValue(_key(StateKind.SNAPSHOT, key), value)


def state_tombstone(key: StateKey) -> KeyValue:
    return KeyValue(_key(StateKind.SNAPSHOT, key), None)


def update_record(key: StateKey, update: StateUpdate) -> KeyValue:
    head = _UPDATE_HEAD.pack(update.snapshot_epoch, update.leader_epoch, update.start_offset)
    value = _START + head + _batches(update.batches) + _tags(update)
    return KeyValue(_key(StateKind.UPDATE, key), value)


def _batches(batches: tuple[StateBatch, ...]) -> bytes:
    return compact_length(len(batches)) + b"".join(map(_batch, batches))


def _batch(batch: StateBatch) -> bytes:
    first, last, state, count = batch
    tags = _REJECTED if state is RecordState.ARCHIVING_REJECTED else _NO_TAGS
    return _BATCH.pack(first, last, state.kafka_state, count) + tags


def _tags(what: ShareState | StateUpdate) -> bytes:
    fields = {}
    if what.complete_count != NO_COUNT:
        fields[_COUNT_TAG] = _INT32.pack(what.complete_count)
    if what.letters is not None:
        fields[_LETTERS_TAG] = encode_letters(what.letters)
    return tagged(fields)


# ------------------------------------------------------------------------------- reading


def decode_snapshot(data: bytes) -> ShareState:
    """Raises ValueError."""
    reader = Reader(data, "the state of a share partition", last_version=0, flexible_from=0)
    snapshot_epoch, state_epoch, leader_epoch = reader.int32(), reader.int32(), reader.int32()
    start_offset, create_ms, write_ms = reader.int64(), reader.int64(), reader.int64()
    batches = _read_batches(reader)
    complete_count, letters = _read_tags(reader)
    return ShareState(
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        complete_count,
        create_ms,
        write_ms,
        batches,
        letters,
    )


def decode_update(data: bytes) -> StateUpdate:
    """Raises ValueError."""
    reader = Reader(data, "an update of a share partition", last_version=0, flexible_from=0)
    snapshot_epoch, leader_epoch, start_offset = reader.int32(), reader.int32(), reader.int64()
    batches = _read_batches(reader)
    complete_count, letters = _read_tags(reader)
    return StateUpdate(snapshot_epoch, leader_epoch, start_offset, complete_count, batches, letters)


def _read_batches(reader: Reader) -> tuple[StateBatch, ...]:
    return tuple(_read_batch(reader) for _ in range(reader.array_length()))


def _read_batch(reader: Reader) -> StateBatch:
    first, last = reader.int64(), reader.int64()
    state, count = RecordState(reader.int8()), reader.int16()
    if _REJECTED_TAG in reader.tags() and state is RecordState.ARCHIVING:
        state = RecordState.ARCHIVING_REJECTED
    return StateBatch(first, last, state, count)


def _read_tags(reader: Reader) -> tuple[int, LetterPlan | None]:
    fields = reader.tags()
    letters = fields.get(_LETTERS_TAG)
    plan = None if letters is None else decode_letters(letters)
    data = fields.get(_COUNT_TAG)
    if data is None:
        return NO_COUNT, plan
    if len(data) != _INT32.size:
        raise ValueError("a share partition with a damaged number of completed deliveries")
    return _INT32.unpack(data)[0], plan
