"""Finding records by time: ListOffsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stele.wire.batch import NO_TIMESTAMP, batches, decode
from stele.world import Buffer
from storage.log_types import TimestampOffset
from storage.segment import Segment

if TYPE_CHECKING:
    from storage.log import PartitionLog


async def first_at_or_after(log: PartitionLog, timestamp_ms: int) -> TimestampOffset | None:
    """The first record whose time is at or after ``timestamp_ms``; None if there is none.

    Times need not rise with offsets: every segment is asked whether it has such a record at all.
    """
    for segment in log.segments.all():
        if segment.end_offset <= log.start_offset or segment.largest_timestamp_ms < timestamp_ms:
            continue
        found = await _first_in(log, segment, timestamp_ms)
        if found is not None:
            return found
    return None


async def newest(log: PartitionLog) -> TimestampOffset | None:
    """The record with the greatest time (KIP-734), the first of several."""
    newest_ms = max(segment.largest_timestamp_ms for segment in log.segments)
    return None if newest_ms == NO_TIMESTAMP else await first_at_or_after(log, newest_ms)


async def _first_in(
    log: PartitionLog, segment: Segment, timestamp_ms: int
) -> TimestampOffset | None:
    offset = max(segment.time_index.offset_before(timestamp_ms), log.start_offset)
    generation = log.truncation_generation
    while offset < segment.end_offset and log.truncation_generation == generation:
        result = log.read(offset, log.config.index_interval_bytes)
        if result.cold is not None:
            await log.warm(result.cold)
            offset = max(offset, log.start_offset)
            continue
        found = _first_of(result.data, timestamp_ms, log.start_offset)
        if found is not None:
            return found
        offset = result.next_offset
    return None


def _first_of(data: Buffer, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    for at, header in batches(data):
        if header.max_timestamp_ms < timestamp_ms:
            continue
        for record in decode(data, at):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return None
