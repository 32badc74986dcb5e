"""Decides when a log begins a new segment."""

from __future__ import annotations

from typing import Final

from stele.wire.batch import NO_TIMESTAMP, BatchHeader
from storage.config import NEVER_MS, LogConfig
from storage.log_types import LogView
from storage.offset_index import ENTRY_SIZE, RELATIVE_OFFSET_MAX

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
    if not fits(segment.base_offset, last_offset):
        return True
    if segment.index_entries >= _entries_max(config):
        return True
    time_ms = config.segment_time_ms(log.name, segment.base_offset)
    if segment.first_timestamp_ms != NO_TIMESTAMP and max_timestamp_ms != NO_TIMESTAMP:
        return max_timestamp_ms - segment.first_timestamp_ms > time_ms
    return now_ms - segment.created_ms > time_ms


def fits(base_offset: int, last_offset: int) -> bool:
    """Whether the indexes of a segment can name an offset."""
    return last_offset - base_offset <= RELATIVE_OFFSET_MAX


class RunRoom:
    """The room that is left in the segment of a run, so that a run ends where ``must_roll`` would
    end the segment if its batches came one by one."""

    __slots__ = ("_bytes_left", "_entries_left", "_interval", "_last_offset", "_newest", "_unseen")

    def __init__(
        self,
        *,
        bytes_left: int,
        newest_ms: int,
        last_offset: int,
        entries_left: int,
        unseen: int,
        interval: int,
    ) -> None:
        """``unseen``: the bytes since the last index entry."""
        self._bytes_left = bytes_left
        self._newest = newest_ms
        self._last_offset = last_offset
        self._entries_left = entries_left  # this many index entries end the segment
        self._unseen = unseen
        self._interval = interval

    def take(self, header: BatchHeader) -> bool:
        """Take the next batch into the run. False: it must begin a new segment."""
        size_bytes = header.size_bytes
        if (
            size_bytes > self._bytes_left
            or header.max_timestamp_ms > self._newest
            or header.last_offset > self._last_offset
            or self._entries_left <= 0
        ):
            return False
        self._bytes_left -= size_bytes
        if self._unseen > self._interval:  # as ``Segment.note``
            self._unseen = 0
            self._entries_left -= 1
        self._unseen += size_bytes
        return True


def room_behind(
    log: LogView, first: BatchHeader, *, is_new_segment: bool, base_offset: int
) -> RunRoom:
    """The room behind ``first``, the first batch of a run that is not written yet. The run goes
    into a new segment or into the active one (``is_new_segment``), which begins at
    ``base_offset``."""
    segment, config = log.segments.active, log.config
    begins = is_new_segment or segment.size == 0
    first_ms = first.max_timestamp_ms if begins else segment.first_timestamp_ms
    newest_ms = NEVER_MS
    if first_ms >= 0:
        newest_ms = first_ms + config.segment_time_ms(log.name, base_offset)
    entries = 0 if is_new_segment else segment.index_entries
    unseen = 0 if is_new_segment else segment.bytes_since_index
    interval = config.index_interval_bytes
    if unseen > interval:
        entries, unseen = entries + 1, 0
    size_bytes = min(config.segment_bytes, _POSITION_MAX)
    return RunRoom(
        bytes_left=size_bytes - first.size_bytes - (0 if is_new_segment else segment.size),
        newest_ms=newest_ms,
        last_offset=base_offset + RELATIVE_OFFSET_MAX,
        entries_left=_entries_max(config) - entries,
        unseen=unseen + first.size_bytes,
        interval=interval,
    )


def _entries_max(config: LogConfig) -> int:
    """A segment whose index has this many entries is full."""
    return -(-config.segment_index_bytes // ENTRY_SIZE) - 1
