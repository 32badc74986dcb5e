"""Searches for records by timestamp, for ListOffsets."""

from __future__ import annotations

from typing import Final

from stele.wire.batch import NO_TIMESTAMP, batches, decode
from stele.world import Buffer
from storage.cold_range import ColdRange
from storage.log_types import LogView, TimestampOffset
from storage.segment import Segment
from storage.turns import Slices

_SEGMENTS_PER_TURN: Final = 32
_BATCHES_PER_TURN: Final = 64


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


async def newest(log: LogView) -> TimestampOffset | None:
    """The record with the greatest timestamp (KIP-734), or the first of several."""
    slices = Slices(_SEGMENTS_PER_TURN)
    while True:
        replacements = log.segments.replacements
        newest_ms = NO_TIMESTAMP
        for segment in log.segments.all():
            await slices.step()
            newest_ms = max(newest_ms, await largest_timestamp(log, segment))
        if log.segments.replacements == replacements:
            break
    return None if newest_ms == NO_TIMESTAMP else await first_at_or_after(log, newest_ms)


async def largest_timestamp(log: LogView, segment: Segment) -> int:
    """The greatest timestamp in the segment; -1 if there is none, or if the segment was deleted
    or replaced meanwhile. Raises OSError."""
    while log.offline is None and segment in log.segments:
        found = segment.largest_timestamp()
        if not isinstance(found, ColdRange):
            return found
        await log.warm(found)
    return NO_TIMESTAMP


async def _first_in(log: LogView, segment: Segment, timestamp_ms: int) -> TimestampOffset | None:
    generation = log.truncation_generation
    slices = Slices(_BATCHES_PER_TURN)
    offset = -1
    while log.truncation_generation == generation and segment in log.segments:
        if offset < 0:
            before = segment.offset_before_time(timestamp_ms)
            if isinstance(before, ColdRange):
                await log.warm(before)
                continue
            offset = before
        offset = max(offset, log.start_offset)
        if offset >= segment.end_offset:
            break
        result = log.read(offset, log.config.index_interval_bytes)
        if result.cold is not None:
            await log.warm(result.cold)
            continue
        found = _first_of(result.data, timestamp_ms, log.start_offset)
        if found is not None:
            return found
        offset = result.next_offset
        await slices.step()
    return None


def _first_of(data: Buffer, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    for at, header in batches(data):
        if header.max_timestamp_ms < timestamp_ms:
            continue
        for record in decode(data, at):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return None
