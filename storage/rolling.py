"""Decides when a log begins a new segment."""

from __future__ import annotations

from typing import Final

from stele.wire.batch import NO_TIMESTAMP, BatchHeader
from storage.log_types import LogView
from storage.offset_index import ENTRY_SIZE

_POSITION_MAX: Final = 0x7FFFFFFF  # positions in an index are 32 bits wide


def must_roll(
    log: LogView, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int
) -> bool:
    """Whether a batch must begin a new segment. Time is that of the records, as in Kafka, so that
    all replicas roll at the same offsets."""
    segment, config = log.segments.active, log.config
    size = segment.size
    if size == 0:
        return False
    if size + size_bytes > config.segment_bytes or size + size_bytes > _POSITION_MAX:
        return True
    if last_offset - segment.base_offset > _POSITION_MAX:
        return True
    if (segment.index_entries + 1) * ENTRY_SIZE >= config.segment_index_bytes:
        return True
    time_ms = config.segment_time_ms(log.name, segment.base_offset)
    if segment.first_timestamp_ms != NO_TIMESTAMP and max_timestamp_ms != NO_TIMESTAMP:
        return max_timestamp_ms - segment.first_timestamp_ms > time_ms
    return now_ms - segment.created_ms > time_ms


def must_roll_behind(
    log: LogView,
    run: list[tuple[int, BatchHeader]],
    run_bytes: int,
    header: BatchHeader,
    *,
    is_new_segment: bool,
) -> bool:
    """Whether a batch after a run must begin another segment. The run, which is not written yet,
    goes into a new segment or into the active one (``is_new_segment``)."""
    segment, config = log.segments.active, log.config
    size = run_bytes if is_new_segment else segment.size + run_bytes
    if size + header.size_bytes > config.segment_bytes:
        return True
    first = run[0][1]
    begins = is_new_segment or segment.size == 0
    first_ms = first.max_timestamp_ms if begins else segment.first_timestamp_ms
    base_offset = first.base_offset if is_new_segment else segment.base_offset
    time_ms = config.segment_time_ms(log.name, base_offset)
    return first_ms >= 0 and header.max_timestamp_ms - first_ms > time_ms
