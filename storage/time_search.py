"""Searches for records by timestamp, for ListOffsets.

All of them work in slices, and hold one read and one part of a decompressed batch at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from stele.wire.batch import NO_TIMESTAMP, BatchError, BatchHeader, batches, check_crc
from stele.wire.record_times import record_times
from stele.world import Buffer
from storage.cold_range import ColdRange
from storage.errors import CorruptLogError
from storage.log_types import LogView, TimestampOffset
from storage.segment import Segment
from storage.turns import Slices

_SEGMENTS_PER_TURN: Final = 32
_READS_PER_TURN: Final = 64
_READ_BYTES: Final = 16 * 1024  # a larger read counts as several
_SCAN_BYTES: Final = 256 * 1024  # bytes per read of a walk over all batches


async def first_at_or_after(log: LogView, timestamp_ms: int) -> TimestampOffset | None:
    """The first record whose timestamp is at or after ``timestamp_ms``. None if there is none.

    Timestamps need not rise with offsets, so every segment is checked for such a record.
    """
    while True:
        replacements = log.segments.replacements
        found = await _first_of_all(log, timestamp_ms)
        # A segment that compaction replaced meanwhile was passed over.
        if log.segments.replacements == replacements:
            return found


async def _first_of_all(log: LogView, timestamp_ms: int) -> TimestampOffset | None:
    slices = Slices(_SEGMENTS_PER_TURN)
    for segment in log.segments.all():
        if segment.end_offset <= log.start_offset:
            continue
        await slices.step()
        if await largest_timestamp(log, segment) < timestamp_ms:
            continue
        found = await _first_in(log, segment, timestamp_ms)
        if found is not None:
            return found
    return None


async def newest(log: LogView, limit_offset: int) -> TimestampOffset | None:
    """The record below ``limit_offset`` with the greatest timestamp (KIP-734), or the first of
    several.

    A segment knows the greatest timestamp of all its records. That record may lie below the log's
    start, which DeleteRecords has moved into the segment, or at or above the limit. Only then are
    the batches of such a segment looked at.
    """
    while True:
        unchanged = log.segments.replacements, log.start_offset
        found = await _newest_of(log, limit_offset, exactly=False)
        if found is not None and found.offset >= limit_offset:
            found = await _newest_of(log, limit_offset, exactly=True)
        if (log.segments.replacements, log.start_offset) == unchanged:
            return None if found is None or found.offset >= limit_offset else found


async def _newest_of(log: LogView, limit_offset: int, *, exactly: bool) -> TimestampOffset | None:
    """The first record of the greatest timestamp; None if no record has a time.

    Its offset is ``limit_offset`` if the record is outside of the range, which cannot happen with
    ``exactly``.
    """
    slices = Slices(_SEGMENTS_PER_TURN)
    newest_ms = NO_TIMESTAMP
    for segment in log.segments.all():
        await slices.step()
        if segment.end_offset <= log.start_offset or segment.base_offset >= limit_offset:
            continue
        largest_ms = await largest_timestamp(log, segment)
        is_whole = log.start_offset <= segment.base_offset and segment.end_offset <= limit_offset
        if largest_ms > newest_ms and exactly and not is_whole:
            largest_ms = await _largest_between(log, segment, limit_offset)
        newest_ms = max(newest_ms, largest_ms)
    if newest_ms == NO_TIMESTAMP:
        return None
    found = await first_at_or_after(log, newest_ms)
    return TimestampOffset(newest_ms, limit_offset, -1) if found is None else found


async def largest_timestamp(log: LogView, segment: Segment) -> int:
    """The greatest timestamp in the segment; -1 if there is none, or if the segment was deleted
    or replaced meanwhile. Raises OSError."""
    while log.offline is None and segment in log.segments:
        found = segment.largest_timestamp()
        if not isinstance(found, ColdRange):
            return found
        await log.warm(found)
    return NO_TIMESTAMP


async def _largest_between(log: LogView, segment: Segment, limit_offset: int) -> int:
    """The greatest timestamp of the segment's records from the log's start to the limit."""
    start_offset = max(log.start_offset, segment.base_offset)
    largest_ms = NO_TIMESTAMP
    walk = _Walk(log, segment, start_offset, _SCAN_BYTES)
    while (data := await walk.read()) is not None:
        for at, header in walk.batches(data):
            if header.base_offset >= limit_offset:
                return largest_ms
            if header.max_timestamp_ms <= largest_ms:
                continue
            if start_offset <= header.base_offset and header.last_offset < limit_offset:
                largest_ms = header.max_timestamp_ms
                continue
            for places in walk.places(data, at, header):
                for time_ms, offset in places:
                    if time_ms > largest_ms and start_offset <= offset < limit_offset:
                        largest_ms = time_ms
                await asyncio.sleep(0)
    return largest_ms


async def _first_in(log: LogView, segment: Segment, timestamp_ms: int) -> TimestampOffset | None:
    while log.offline is None and segment in log.segments:
        before = segment.offset_before_time(timestamp_ms)
        if not isinstance(before, ColdRange):
            break
        await log.warm(before)
    else:
        return None
    walk = _Walk(log, segment, before, log.config.index_interval_bytes)
    while (data := await walk.read()) is not None:
        for at, header in walk.batches(data):
            if header.max_timestamp_ms < timestamp_ms:
                continue
            for places in walk.places(data, at, header):
                for time_ms, offset in places:
                    if time_ms >= timestamp_ms and offset >= log.start_offset:
                        return TimestampOffset(time_ms, offset, header.leader_epoch)
                await asyncio.sleep(0)
    return None


class _Walk:
    """Reads the batches of a segment one read after the other."""

    def __init__(self, log: LogView, segment: Segment, offset: int, max_bytes: int) -> None:
        self._log = log
        self._segment = segment
        self._offset = offset
        self._read_from = offset  # where the last read began
        self._max_bytes = max_bytes
        self._generation = log.truncation_generation
        self._slices = Slices(_READS_PER_TURN)

    async def read(self) -> Buffer | None:
        """The next whole batches that are not below the log's start. None at the segment's end, or
        if the log was truncated meanwhile. The offsets of a segment that was deleted are below the
        log's start, and those of one that was replaced are in the other one."""
        log, segment = self._log, self._segment
        while log.truncation_generation == self._generation:
            offset = max(self._offset, log.start_offset)
            if offset >= segment.end_offset:
                break
            result = log.read(offset, self._max_bytes)
            if result.cold is None:
                self._read_from, self._offset = offset, result.next_offset
                await self._slices.step(1 + len(result.data) // _READ_BYTES)
                return result.data
            await log.warm(result.cold)
        return None

    def batches(self, data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
        """(position in the data, header) of the batches of the last read. Raises
        CorruptLogError."""
        end, offset = 0, self._read_from
        try:
            for at, header in batches(data):
                yield at, header
                end, offset = at + header.size_bytes, header.next_offset
        except BatchError as error:
            raise self._corrupt(end, str(error), offset) from error

    def places(self, data: Buffer, at: int, header: BatchHeader) -> Iterator[list[tuple[int, int]]]:
        """Time and offset of the records of one batch of the last read, in slices of the work.
        Raises CorruptLogError."""
        if not check_crc(data, at, header):
            raise self._corrupt(at, "the CRC does not match", header.base_offset)
        return record_times(data, at, header)

    def _corrupt(self, at: int, reason: str, offset: int) -> CorruptLogError:
        """The batch ``at`` of the last read is damaged."""
        segments = self._log.segments  # compaction may have replaced the segment
        segment = segments.at(segments.index_of(self._read_from))
        start = segment.locate(self._read_from, wait=True)
        position = start.position if isinstance(start, ColdRange) else start + at
        return segment.corrupt(position, reason, offset)
