"""The records of a batch as they are stored: where each begins, and what decides about it."""

from __future__ import annotations

from typing import NamedTuple

from stele.wire import native
from stele.wire.batch import HEADER_SIZE, BatchHeader, CorruptBatchError, check_crc
from stele.wire.compression import Compression, CompressionError, decompress
from stele.world import Buffer


class StoredRecord(NamedTuple):
    """A record of a batch whose decompressed body is ``data``."""

    start: int
    end: int
    """``data[start:end]`` is the record with its length."""
    rest: int
    """``data[rest:end]`` is everything after the timestamp delta."""
    timestamp_delta_ms: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool
    """It has no value."""


def body_of(batch: Buffer, header: BatchHeader) -> bytes:
    """The decompressed records of a whole batch. Raises BatchError if its CRC does not match."""
    if not check_crc(batch, 0, header):
        raise CorruptBatchError(f"the CRC of the batch at {header.base_offset} does not match")
    body = memoryview(batch)[HEADER_SIZE : header.size_bytes]
    if header.compression is Compression.NONE or not header.record_count:
        return bytes(body)
    try:
        return decompress(header.compression, body)
    except CompressionError as error:
        raise CorruptBatchError(error.message) from error


def stored_records(data: bytes, count: int) -> list[StoredRecord]:
    """All records of a body. Raises CorruptBatchError unless they fill it exactly."""
    if native.NATIVE is not None:
        sound = native.NATIVE.stored_records(data, count, StoredRecord)
        if sound is not None:
            return sound
    records: list[StoredRecord] = []
    position = 0
    try:
        for _ in range(count):
            start = position
            size, position = _varint(data, position)
            end = position + size
            timestamp_delta_ms, rest = _varint(data, position + 1)  # after the attributes
            offset_delta, position = _varint(data, rest)
            size, position = _varint(data, position)
            key = None
            if size >= 0:
                key = data[position : position + size]
                position += size
            is_tombstone = data[position] == 1  # the length -1, in zigzag
            if not position < end <= len(data):
                raise CorruptBatchError(f"record {len(records)} does not end where it says")
            records.append(
                StoredRecord(start, end, rest, timestamp_delta_ms, offset_delta, key, is_tombstone)
            )
            position = end
    except IndexError:
        raise CorruptBatchError("the batch ends inside a record") from None
    if position != len(data):
        raise CorruptBatchError(f"{len(data)} bytes of records, {position} expected")
    return records


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
