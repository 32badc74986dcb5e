"""The records of ``__transaction_state``, in Kafka's layouts, byte for byte.

A key (TransactionLogKey) is version 0 and a transactional id. A value (TransactionLogValue) has
version 0, or version 1, which is flexible (KIP-482, KIP-915) and has tagged fields. Kafka writes
version 1 from level 1 of ``transaction.version`` on. Unknown tagged fields are skipped.
"""

from __future__ import annotations

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
from broker.coordinator.step import KeyValue
from broker.coordinator.transaction.partitions import NO_PARTITIONS, TransactionPartitions
from broker.coordinator.transaction.types import NO_EPOCH, NO_PRODUCER_ID, TransactionState
from stele.ids import TopicPartition

_HEAD: Final = struct.Struct(">hqhib")  # version, producer id and epoch, time-out, state
_TIMES: Final = struct.Struct(">qq")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_KEY_VERSION: Final = 0
_LAST_VALUE: Final = 1
_PREVIOUS_ID_TAG: Final = 0
_NEXT_ID_TAG: Final = 1
_CLIENT_VERSION_TAG: Final = 2
_NEXT_EPOCH_TAG: Final = 3
END_BYTES_MAX: Final = 64
"""How much longer the record that ends a transaction may be than the one that adds its last
partition. It may be of the other version, and have all four tagged fields, of 28 bytes."""


class RecordedTransaction(NamedTuple):
    """All that is known of a transactional id."""

    producer_id: int
    """The producer id of the transaction's records and markers."""
    producer_epoch: int
    """From PREPARE_* on the epoch of the markers, which may be above that of the records."""
    timeout_ms: int
    state: TransactionState
    partitions: TransactionPartitions
    """The partitions that the transaction has written to. Empty unless a transaction is open."""
    update_time_ms: int  # when anything changed last
    start_time_ms: int = -1  # of the last transaction; -1: none since InitProducerId
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id that the client had before its last change of epoch. -1 if the client of
    then was replaced, so that nothing it repeats is answered any more."""
    next_producer_id: int = NO_PRODUCER_ID
    """What the client has, or gets when the transaction is over, if that is not the id and the
    epoch of the transaction. -1: it is."""
    next_producer_epoch: int = NO_EPOCH
    client_version: int = 0
    """The transaction version that the last transaction was changed with."""


class TransactionRecord(KeyValue):
    """A record that was made here. Its replay need not decode its value, which may have many
    thousand partitions."""

    recorded: RecordedTransaction | None = None
    """What the value says. None: it has to be decoded, since version 0 leaves something out."""


def transaction_key(transactional_id: str) -> bytes:
    return VERSION.pack(_KEY_VERSION) + string(transactional_id)


def transaction_record(
    transactional_id: str, value: RecordedTransaction, transaction_version: int
) -> KeyValue:
    """``transaction_version`` is the level of the cluster. A value that has a next producer id is
    written as version 1 in any case, because version 0 would lose it."""
    is_flexible = transaction_version >= 1 or value.next_producer_id != NO_PRODUCER_ID
    key = transaction_key(transactional_id)
    if not is_flexible:
        return KeyValue(key, _plain_value(value))
    record = TransactionRecord(key, _flexible_value(value))
    record.recorded = value
    return record


def transaction_tombstone(transactional_id: str) -> KeyValue:
    return KeyValue(transaction_key(transactional_id), None)


def _head(version: int, value: RecordedTransaction) -> bytes:
    return _HEAD.pack(
        version,
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        value.state.value,
    )


def _has_partitions(value: RecordedTransaction) -> bool:
    """Whether Kafka writes an array of partitions, be it an empty one, or null."""
    return value.state is not TransactionState.EMPTY


def _plain_value(value: RecordedTransaction) -> bytes:
    parts = [_head(0, value)]
    if _has_partitions(value):
        topics = value.partitions.topics
        parts.append(_INT32.pack(len(topics)))
        for each in topics:
            parts += (string(each.topic), _INT32.pack(len(each)), each.packed)
    else:
        parts.append(_INT32.pack(-1))
    parts.append(_TIMES.pack(value.update_time_ms, value.start_time_ms))
    return b"".join(parts)


def _flexible_value(value: RecordedTransaction) -> bytes:
    parts = [_head(1, value)]
    if _has_partitions(value):
        topics = value.partitions.topics
        parts.append(compact_length(len(topics)))
        parts += [each.flexible for each in topics]
    else:
        parts.append(b"\0")
    parts.append(_TIMES.pack(value.update_time_ms, value.start_time_ms))
    parts.append(tagged(_tags(value)))
    return b"".join(parts)


def _tags(value: RecordedTransaction) -> dict[int, bytes]:
    """The tagged fields that do not have their default."""
    tags = {}
    if value.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_ID_TAG] = _INT64.pack(value.previous_producer_id)
    if value.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_ID_TAG] = _INT64.pack(value.next_producer_id)
    if value.client_version:
        tags[_CLIENT_VERSION_TAG] = _INT16.pack(value.client_version)
    if value.next_producer_epoch != NO_EPOCH:
        tags[_NEXT_EPOCH_TAG] = _INT16.pack(value.next_producer_epoch)
    return tags


# ------------------------------------------------------------------------------- reading


def decode_key(data: bytes) -> str:
    """The transactional id. Raises ValueError if the kind of the record is not known, or if it is
    damaged."""
    try:
        (version,) = VERSION.unpack_from(data)
        if version != _KEY_VERSION:
            raise ValueError(f"a key of version {version}")
        transactional_id, end = key_string(data, VERSION.size)
    except struct.error:
        raise ValueError("a key that ends early") from None
    if end != len(data):
        raise ValueError("a key that goes on after its end")
    return transactional_id


def decode_value(data: bytes) -> RecordedTransaction:
    """Raises ValueError."""
    reader = Reader(data, "a transaction", last_version=_LAST_VALUE, flexible_from=1)
    producer_id = reader.int64()
    producer_epoch = reader.int16()
    timeout_ms = reader.int32()
    state = TransactionState(reader.int8())
    if state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        raise ValueError(f"a transaction in the state {state.label}, which is never recorded")
    partitions = _read_partitions(reader)
    update_time_ms = reader.int64()
    start_time_ms = reader.int64()
    tags = reader.tags()
    next_id = _read_tag(tags, _NEXT_ID_TAG, _INT64, NO_PRODUCER_ID)
    # Before KIP-939 a next producer id is a fresh one.
    next_epoch = NO_EPOCH if next_id == NO_PRODUCER_ID else 0
    return RecordedTransaction(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        update_time_ms,
        start_time_ms,
        previous_producer_id=_read_tag(tags, _PREVIOUS_ID_TAG, _INT64, NO_PRODUCER_ID),
        next_producer_id=next_id,
        next_producer_epoch=_read_tag(tags, _NEXT_EPOCH_TAG, _INT16, next_epoch),
        client_version=_read_tag(tags, _CLIENT_VERSION_TAG, _INT16, 0),
    )


def _read_partitions(reader: Reader) -> TransactionPartitions:
    partitions = []
    for _ in range(reader.nullable_array_length() or 0):
        topic = reader.string()
        numbers = reader.int32s(reader.array_length())
        partitions += [TopicPartition(topic, number) for number in numbers]
        reader.tags()
    return TransactionPartitions.of(partitions) if partitions else NO_PARTITIONS


def value_of(record: KeyValue) -> RecordedTransaction | None:
    """The value of a record about its transactional id; None: a tombstone. Raises ValueError."""
    if record.value is None:
        return None
    recorded = record.recorded if isinstance(record, TransactionRecord) else None
    return recorded or decode_value(record.value)


def _read_tag(tags: dict[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != layout.size:
        raise ValueError(f"a transaction with a tagged field {tag} of {len(data)} bytes")
    number: int = layout.unpack(data)[0]
    return number
