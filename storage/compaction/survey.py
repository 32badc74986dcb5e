"""Which bytes of a log are dirty, and which may be compacted now."""

from __future__ import annotations

from typing import Final, NamedTuple

from stele.wire.batch import HEADER_SIZE, NO_TIMESTAMP, read_header
from storage.config import NEVER_MS
from storage.log_types import LogView
from storage.segment import Segment
from storage.time_search import largest_timestamp
from storage.turns import Slices

_SEGMENTS_PER_TURN: Final = 32


class Survey(NamedTuple):
    """The cleanable segments of a log, from its first one on. They are adjacent and sealed."""

    segments: tuple[tuple[int, int, int], ...]
    """Base offset, end offset and size in bytes."""
    first_dirty: int
    """No record below has a later one of the same key below."""
    clean_bytes: int
    dirty_bytes: int
    """In the segments that end above ``first_dirty``."""
    is_overdue: bool
    """A dirty record is older than ``max.compaction.lag.ms``."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


async def survey(log: LogView, clean_end: int, limit_offset: int, now_ms: int) -> Survey:
    """``clean_end``: where the last round ended, as far as is known. ``limit_offset``: nothing from
    there on may be compacted.

    The active segment is never cleanable, nor is a segment with a record younger than
    ``min.compaction.lag.ms`` or any segment after it. This may wait for the disk. Raises OSError,
    StorageError, CorruptLogError.
    """
    first_base = log.segments.bases[0]
    first_dirty = clean_end if first_base <= clean_end <= log.end_offset else first_base
    slices = Slices(_SEGMENTS_PER_TURN)
    spans: list[tuple[int, int, int]] = []
    clean_bytes = dirty_bytes = 0
    is_overdue = False
    for segment in log.segments.sealed():
        if segment.end_offset > limit_offset or not await _is_old_enough(log, segment, now_ms):
            break
        spans.append((segment.base_offset, segment.end_offset, segment.size))
        if segment.end_offset <= first_dirty:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
            is_overdue = is_overdue or await _is_overdue(log, segment, now_ms)
        await slices.step()
    return Survey(tuple(spans), first_dirty, clean_bytes, dirty_bytes, is_overdue)


async def _is_old_enough(log: LogView, segment: Segment, now_ms: int) -> bool:
    lag_ms = log.config.min_compaction_lag_ms
    return not lag_ms or await largest_timestamp(log, segment) <= now_ms - lag_ms


async def _is_overdue(log: LogView, segment: Segment, now_ms: int) -> bool:
    """Whether the first batch of a segment has waited too long."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == NEVER_MS:
        return False
    while log.offline is None and segment in log.segments:
        offset = max(segment.base_offset, log.start_offset)
        if offset >= segment.end_offset:
            return False
        result = log.read(offset, HEADER_SIZE)
        if result.cold is None:
            first_ms = read_header(result.data).max_timestamp_ms
            return first_ms != NO_TIMESTAMP and now_ms - first_ms > lag_ms
        await log.warm(result.cold)
    return False
