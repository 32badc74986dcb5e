"""The times and offsets of a batch's records, without their keys and values.

A look-up by time needs no more of a record. The records of one batch can be very many, and can
decompress to very much, so the work is done in slices and holds one part of the batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stele.wire.batch import HEADER_SIZE, BatchHeader, CorruptBatchError
from stele.wire.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    CompressionError,
    decompressed,
)
from stele.world import Buffer

SLICE_BYTES: Final = 256 * 1024  # decompressed bytes per slice
SLICE_RECORDS: Final = 1000
_RECORD_COST_BYTES: Final = SLICE_BYTES // SLICE_RECORDS + 1
_PART_COST_BYTES: Final = 4096
_HEAD_BYTES: Final = 21  # the longest length, attributes, time and offset of a record


_Place = tuple[int, int]


def record_times(batch: Buffer, position: int, header: BatchHeader) -> Iterator[list[_Place]]:
    """(timestamp in ms, offset) of each record of the batch at ``position``, in slices of the work.

    A leader has checked the records, and the caller the CRC. Raises CorruptBatchError.
    """
    end = position + header.size_bytes
    body = memoryview(batch)[position + HEADER_SIZE : end]
    parts = decompressed(
        header.compression, body, DEFAULT_MAX_DECOMPRESSED_BYTES, chunk_bytes=SLICE_BYTES
    )
    try:
        yield from _slices(parts, header)
    except CompressionError as error:
        raise CorruptBatchError(error.message) from error


def _slices(parts: Iterator[bytes], header: BatchHeader) -> Iterator[list[_Place]]:
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    base_ms, base_offset = header.base_timestamp_ms, header.base_offset
    data, position = b"", 0  # the position may lie beyond the data, in a later part
    places: list[_Place] = []
    work_bytes = 0
    for number in range(header.record_count):
        while len(data) - position < _HEAD_BYTES:
            part = next(parts, None)
            if part is None:
                break
            work_bytes += len(part) + _PART_COST_BYTES
            data, position = data[position:] + part, max(position - len(data), 0)
            if work_bytes >= SLICE_BYTES:
                yield places
                places, work_bytes = [], 0
        try:
            size, at = _varint(data, position)
            time_ms, delta_at = _varint(data, at + 1)
            delta, _ = _varint(data, delta_at)
        except IndexError:
            raise CorruptBatchError(f"the batch ends before record {number}") from None
        if size <= 0:
            raise CorruptBatchError(f"record {number} has {size} bytes")
        position = at + size
        places.append(
            (base_ms + time_ms if append_time_ms is None else append_time_ms, base_offset + delta)
        )
        work_bytes += _RECORD_COST_BYTES
        if work_bytes >= SLICE_BYTES:
            yield places
            places, work_bytes = [], 0
    yield places


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number and the position after it. Raises IndexError if the data end before."""
    byte = data[position]
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value >> 1 ^ -(value & 1), position + 1
