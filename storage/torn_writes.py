"""Whether a whole batch stands behind a place where one should begin.

A torn write is at the end of a log. So a whole batch behind a cut means that the batch at the cut
was damaged, not torn. But a record may contain the bytes of a whole batch. So the search follows
the lengths that the headers claim, and does not look for batches inside of others. An example: a
torn batch of 300 bytes begins at byte 173 of a file of 400. Its records hold a whole batch at byte
200. No batch stands behind byte 473.

A damaged length would hide all that follows. It is recognized: the CRC does not cover the length.
So if the bytes up to a whole batch have the CRC of the header, the first batch ends there. Only
where no header stands at all, every byte is tried.
"""

from __future__ import annotations

import re
from typing import Final

from crc32c import crc32c

from stele.wire.batch import CRC_START, HEADER_SIZE, BatchError, BatchHeader, check_crc, read_header
from storage.segment import Segment
from storage.steps import Steps, Turn, Warm

_SCAN_BYTES: Final = 4 << 20
_MAGIC_AND_CRC = re.compile(rb"(?=\x02.{4}\x00)", re.DOTALL)
"""Magic, CRC, and the high byte of the attributes, which no batch uses."""
_MAGIC_POSITION: Final = 16
_CANDIDATES_PER_TURN: Final = 1024
_TRIED_BYTES_PER_BYTE: Final = 8
_TRIED_BYTES_MIN: Final = 64 << 20


def find_batch(segment: Segment, position: int, offset: int) -> Steps[int | None]:
    """The position of a whole and sound batch whose offset is at least ``offset``, from
    ``position`` on, where a batch should begin. None if there is none."""
    while position + HEADER_SIZE <= segment.size:
        header = _header_at(segment, position, offset)
        if header is None:
            return (yield from _try_every_byte(segment, position + 1, offset))
        yield Warm(segment.path, position, min(header.size_bytes, _SCAN_BYTES))
        if is_batch(segment, position, offset):
            return position
        found = yield from _behind_its_true_end(segment, position, header, offset)
        if found is not None:
            return found
        position += header.size_bytes
    return None


def is_batch(segment: Segment, position: int, offset: int) -> bool:
    """Whether a whole and sound batch stands there, whose offset is at least ``offset``."""
    header = _header_at(segment, position, offset)
    if header is None or position + header.size_bytes > segment.size:
        return False
    return check_crc(segment.file.read_now(position, header.size_bytes), 0, header)


def _header_at(segment: Segment, position: int, offset: int) -> BatchHeader | None:
    try:
        header = read_header(segment.file.read_now(position, HEADER_SIZE))
    except BatchError:
        return None
    return header if header.base_offset >= offset else None


def _behind_its_true_end(
    segment: Segment, position: int, header: BatchHeader, offset: int
) -> Steps[int | None]:
    """The position of a whole batch within the claimed length of the one at ``position``, if that
    one ends there by its CRC."""
    crc, checked_to = 0, position + CRC_START
    end = min(position + header.size_bytes, segment.size)
    start, count = position + HEADER_SIZE, 0
    while start < end:
        yield Warm(segment.path, checked_to, min(_SCAN_BYTES, end - checked_to))
        chunk_start = checked_to
        chunk_end = min(chunk_start + _SCAN_BYTES, end)
        chunk = memoryview(segment.file.read_now(chunk_start, _SCAN_BYTES + HEADER_SIZE))
        for match in _MAGIC_AND_CRC.finditer(chunk, start + _MAGIC_POSITION - chunk_start):
            candidate = chunk_start + match.start() - _MAGIC_POSITION
            if candidate >= chunk_end:
                break
            crc = crc32c(chunk[checked_to - chunk_start : candidate - chunk_start], crc)
            checked_to = candidate
            if crc == header.crc and is_batch(segment, candidate, offset):
                return candidate
            count += 1
            if count % _CANDIDATES_PER_TURN == 0:
                yield Turn.OVER
        crc = crc32c(chunk[checked_to - chunk_start : chunk_end - chunk_start], crc)
        start = checked_to = chunk_end
    return None


def _try_every_byte(segment: Segment, position: int, offset: int) -> Steps[int | None]:
    """As ``find_batch``, where the length that leads to the next batch is lost.

    Many bytes that look like headers of large batches could make this take for ever. Then the first
    of those that were not tried counts as a batch: what stands there was not torn.
    """
    left = max(_TRIED_BYTES_PER_BYTE * (segment.size - position), _TRIED_BYTES_MIN)
    start, count = position, 0
    while True:
        size = min(_SCAN_BYTES, segment.size - start)
        yield Warm(segment.path, start, size)
        chunk = segment.file.read_now(start, size)
        for match in _MAGIC_AND_CRC.finditer(chunk, _MAGIC_POSITION):
            candidate = start + match.start() - _MAGIC_POSITION
            header = _header_at(segment, candidate, offset)
            if header is not None and candidate + header.size_bytes <= segment.size:
                left -= header.size_bytes
                if left < 0 or is_batch(segment, candidate, offset):
                    return candidate
            count += 1
            if count % _CANDIDATES_PER_TURN == 0:
                yield Turn.OVER
        if start + size >= segment.size:
            return None
        start += size - HEADER_SIZE  # a header may be in two chunks
