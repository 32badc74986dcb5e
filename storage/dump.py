"""A log's files as printable rows: the output of ``stele log dump``.

It reads plain bytes and opens nothing, so that it can show any file, also one of a node that is
down or of Kafka itself. A fault in a file becomes a row of the output, not an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from stele.errors import SteleError
from stele.wire.batch import (
    HEADER_SIZE,
    BatchError,
    BatchHeader,
    Record,
    check_crc,
    decode,
    read_header,
)
from stele.wire.control_records import control_type, decode_end_marker
from stele.world import Buffer
from storage import offset_index, time_index, txn_index
from storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
)
from storage.producer_state import SnapshotError, decode_snapshot
from storage.segment_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_file_name,
)

_METADATA_SNAPSHOT_SUFFIX: Final = ".checkpoint"  # batches, as in a segment
TEXT_FILES: Final = (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    "quorum-state",
)


class UnknownFileError(SteleError):
    """No file of a log directory has such a name."""


Row = dict[str, Any]
"""One printable row. Names are Kafka's; values are numbers, text, bytes, bool or None."""


DecodeRecord = Callable[[Record], Row]
"""Gives the key and the payload of a record in a form for people. Raises ValueError."""


def dump_file(
    name: str,
    data: Buffer,
    *,
    print_records: bool = False,
    decode_record: DecodeRecord | None = None,
) -> Iterator[Row]:
    """The rows of a file. Its name shows whether it is a segment, an index, a snapshot or text.

    With ``decode_record`` it gives the keys and payloads of records, which are bytes otherwise.
    Raises UnknownFileError.
    """
    base_name = name.rpartition("/")[2]
    key = parse_file_name(base_name)
    base_offset, suffix = key if key is not None else (0, "")
    if suffix == LOG_SUFFIX or base_name.endswith(_METADATA_SNAPSHOT_SUFFIX):
        return dump_segment(data, print_records=print_records, decode_record=decode_record)
    if suffix == INDEX_SUFFIX:
        return dump_offset_index(data, base_offset)
    if suffix == TIME_INDEX_SUFFIX:
        return dump_time_index(data, base_offset)
    if suffix == TXN_INDEX_SUFFIX:
        return dump_txn_index(data)
    if suffix == SNAPSHOT_SUFFIX:
        return dump_snapshot(data)
    if base_name in TEXT_FILES or base_name.endswith("-checkpoint"):
        return dump_text(data)
    raise UnknownFileError(
        f"{name} is no file of a log directory: such files are named like "
        f"00000000000000000000{LOG_SUFFIX}, {PARTITION_METADATA_FILE} or {RECOVERY_POINT_FILE}"
    )


def dump_segment(
    data: Buffer, *, print_records: bool = False, decode_record: DecodeRecord | None = None
) -> Iterator[Row]:
    """A row for each batch. With ``print_records``, rows for its records follow that of the
    batch."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            header = read_header(data, position)
        except BatchError as error:
            yield {"position": position, "error": str(error)}
            return
        if position + header.size_bytes > len(data):
            break
        valid = check_crc(data, position, header)
        yield _batch_row(position, header, valid)
        if print_records and valid:
            decoded_by = _decode_control if header.is_control else decode_record
            yield from _record_rows(data, position, decoded_by)
        position += header.size_bytes
    if position < len(data):
        yield {"position": position, "error": f"{len(data) - position} bytes of a torn batch"}


def _batch_row(position: int, header: BatchHeader, valid: bool) -> Row:
    horizon_ms = header.delete_horizon_ms
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": position,
        "createTime" if not header.is_log_append_time else "logAppendTime": header.max_timestamp_ms,
        "size": header.size_bytes,
        "magic": header.magic,
        **({} if horizon_ms is None else {"deleteHorizonMs": horizon_ms}),
        "compresscodec": header.compression.name.lower() if valid else header.attributes & 7,
        "crc": header.crc,
        "isvalid": valid,
    }


def _record_rows(data: Buffer, position: int, decode_record: DecodeRecord | None) -> Iterator[Row]:
    try:
        records: list[Record] = decode(data, position)
    except BatchError as error:
        yield {"position": position, "error": str(error)}
        return
    for record in records:
        row: Row = {"offset": record.offset, "timestamp": record.timestamp_ms}
        row |= {"key": record.key, "payload": record.value}
        if decode_record is not None:
            try:
                row |= decode_record(record)
            except ValueError as error:
                row["error"] = str(error)
        yield row | {"headers": dict(record.headers)}


def _decode_control(record: Record) -> Row:
    """The contents of a control record; for the end of a transaction also its coordinator."""
    try:
        kind, marker = control_type(record.key), decode_end_marker(record)
    except BatchError as error:
        raise ValueError(str(error)) from None
    row: Row = {"controlType": "UNKNOWN" if kind is None else kind.name}
    return row if marker is None else row | {"coordinatorEpoch": marker.coordinator_epoch}


def dump_offset_index(data: Buffer, base_offset: int) -> Iterator[Row]:
    for offset, position in offset_index.decode_entries(bytes(data), base_offset):
        yield {"offset": offset, "position": position}
    yield from _trailing(data, offset_index.ENTRY_SIZE)


def dump_time_index(data: Buffer, base_offset: int) -> Iterator[Row]:
    for timestamp_ms, offset in time_index.decode_entries(bytes(data), base_offset):
        yield {"timestamp": timestamp_ms, "offset": offset}
    yield from _trailing(data, time_index.ENTRY_SIZE)


def dump_txn_index(data: Buffer) -> Iterator[Row]:
    for version, entry in txn_index.unpack_entries(data):
        yield {
            "version": version,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
    yield from _trailing(data, txn_index.ENTRY_SIZE)


def _trailing(data: Buffer, entry_size: int) -> Iterator[Row]:
    if len(data) % entry_size:
        yield {"error": f"{len(data) % entry_size} bytes behind the last entry"}


def dump_snapshot(data: Buffer) -> Iterator[Row]:
    try:
        entries = decode_snapshot(data)
    except SnapshotError as error:
        yield {"error": str(error)}
        return
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        yield {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.transaction_first_offset,
            "lastTimestamp": entry.last_append_ms,
            "firstSequence": last.base_sequence if last else -1,
            "lastSequence": last.last_sequence if last else -1,
            "lastOffset": last.last_offset if last else -1,
            "offsetDelta": last.last_offset - last.base_offset if last else 0,
        }


def dump_text(data: Buffer) -> Iterator[Row]:
    """The lines of a text file: a checkpoint, ``partition.metadata`` and the like."""
    for line in bytes(data).decode(errors="replace").splitlines():
        yield {"line": line}
