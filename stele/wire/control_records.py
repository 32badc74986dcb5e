"""Control records: what a log tells its readers about itself, in batches with the control flag.

The key of each is version i16 = 0 and type i16. The value of an end marker, which ends a
transaction in one partition (KIP-98), is version i16 = 0 and coordinator epoch i32, big-endian.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from stele.wire.batch import BatchBuilder, Record
from stele.wire.batch_errors import CorruptBatchError


class ControlType(enum.IntEnum):
    """The type of a control record. A control batch holds one or several of them."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_VERSION: Final = 0
_KEY = struct.Struct(">hh")
_END_MARKER = struct.Struct(">hi")


def control_key(control_type: ControlType) -> bytes:
    """The key of a control record: version 0 and the type."""
    return _KEY.pack(_VERSION, control_type)


def control_type(key: bytes | None) -> ControlType | None:
    """The type in a control record's key; None for a type that is not known here."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError(f"a control record with the key {key!r}")
    _version, number = _KEY.unpack_from(key)
    try:
        return ControlType(number)
    except ValueError:
        return None


class EndMarker(NamedTuple):
    """Ends the open transaction of a producer in one partition."""

    commit: bool  # False: the transaction is aborted, and its records count for nothing
    coordinator_epoch: int
    """The leader epoch of the transaction coordinator that decided. A marker of an earlier
    coordinator comes too late and is refused."""


def end_marker_batch(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
) -> bytearray:
    """A control batch of one end marker, as Kafka writes it: transactional, without sequence. The
    leader stamps it as it does other batches."""
    builder = BatchBuilder()
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    value = _END_MARKER.pack(_VERSION, coordinator_epoch)
    builder.append(control_key(kind), value, timestamp_ms=timestamp_ms)
    return builder.build(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def decode_end_marker(record: Record) -> EndMarker | None:
    """The end marker in a control record; None if it is another control record.

    A later version of the value begins with the same fields. Raises CorruptBatchError.
    """
    kind = control_type(record.key)
    if kind is not ControlType.COMMIT and kind is not ControlType.ABORT:
        return None
    value = record.value
    if value is None or len(value) < _END_MARKER.size:
        raise CorruptBatchError(f"an end marker with the value {value!r}")
    version, coordinator_epoch = _END_MARKER.unpack_from(value)
    if version < _VERSION:
        raise CorruptBatchError(f"an end marker of version {version}")
    return EndMarker(kind is ControlType.COMMIT, coordinator_epoch)
