"""Decides when a log begins a new segment."""

from __future__ import annotations

from typing import Final, NamedTuple

from stele.wire.batch import NO_TIMESTAMP, BatchHeader
from storage.config import NEVER_MS
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


class RunRoom(NamedTuple):
    """What a run of batches may have without the end of its segment."""

    size_bytes: int
    newest_ms: int

    def has(self, size_bytes: int, newest_ms: int) -> bool:
        """Whether a run of this size may have a batch of this time."""
        return size_bytes <= self.size_bytes and newest_ms <= self.newest_ms


def room_behind(log: LogView, first: BatchHeader, *, is_new_segment: bool) -> RunRoom:
    """The room of a run that begins with ``first`` and is not written yet. It goes into a new
    segment or into the active one (``is_new_segment``)."""
    segment, config = log.segments.active, log.config
    begins = is_new_segment or segment.size == 0
    first_ms = first.max_timestamp_ms if begins else segment.first_timestamp_ms
    base_offset = first.base_offset if is_new_segment else segment.base_offset
    return RunRoom(
        config.segment_bytes - (0 if is_new_segment else segment.size),
        NEVER_MS if first_ms < 0 else first_ms + config.segment_time_ms(log.name, base_offset),
    )
