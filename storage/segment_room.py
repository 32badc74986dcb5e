"""Whether a batch still fits a segment: its bytes, its index entries, its offsets, its time.

The leader asks it for each batch, a follower and a copy for each batch of a run that is written at
once, and compaction for each segment that is to go into another one.
"""

from __future__ import annotations

from typing import Final, Protocol

from stele.wire.batch import NO_TIMESTAMP
from storage.config import LogConfig
from storage.offset_index import ENTRY_SIZE, RELATIVE_OFFSET_MAX

POSITION_MAX: Final = 0x7FFFFFFF
"""No segment is larger: positions in an index are 32 bits wide."""


class Filling(Protocol):
    """How full a segment is, or will be when a run that is put together is written to it."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def index_entries(self) -> int: ...

    @property
    def first_timestamp_ms(self) -> int: ...

    @property
    def created_ms(self) -> int: ...


class SegmentRoom:
    """What every segment of a log has room for. It knows no segment."""

    __slots__ = ("_index_bytes", "_size_bytes")

    def __init__(self, segment_bytes: int, segment_index_bytes: int) -> None:
        self._size_bytes = min(segment_bytes, POSITION_MAX)
        self._index_bytes = segment_index_bytes

    def holds(self, size_bytes: int, index_bytes: int, reach: int) -> bool:
        """Whether a segment may have this size, an index of this size, and its last offset
        ``reach`` behind its base."""
        return (
            size_bytes <= self._size_bytes
            and index_bytes <= self._index_bytes
            and reach <= RELATIVE_OFFSET_MAX
        )


class LogRoom(SegmentRoom):
    """With the time after which a segment of a log ends. Time is that of the records, as in Kafka,
    so that all replicas begin segments at the same offsets."""

    __slots__ = ("_base_offset", "_config", "_log_name", "_time_ms")

    def __init__(self, config: LogConfig, log_name: str) -> None:
        whole_entries = -(-config.segment_index_bytes // ENTRY_SIZE) * ENTRY_SIZE
        super().__init__(config.segment_bytes, whole_entries)
        self._config = config
        self._log_name = log_name
        # The time of the segment that was asked about last.
        self._base_offset = -1
        self._time_ms = 0

    def fits(
        self,
        filling: Filling,
        size_bytes: int,
        last_offset: int,
        max_timestamp_ms: int,
        now_ms: int,
    ) -> bool:
        """Whether the next batch goes into the segment. A first batch does, whatever its size."""
        size, base_offset = filling.size, filling.base_offset
        if size == 0:
            return True
        # With an entry for this batch, and the place of one that stays free, as in Kafka.
        index_bytes = (filling.index_entries + 2) * ENTRY_SIZE
        if not self.holds(size + size_bytes, index_bytes, last_offset - base_offset):
            return False
        if base_offset != self._base_offset:
            self._base_offset = base_offset
            self._time_ms = self._config.segment_time_ms(self._log_name, base_offset)
        first_ms = filling.first_timestamp_ms
        if first_ms != NO_TIMESTAMP and max_timestamp_ms != NO_TIMESTAMP:
            return max_timestamp_ms - first_ms <= self._time_ms
        return now_ms - filling.created_ms <= self._time_ms


def names(base_offset: int, last_offset: int) -> bool:
    """Whether the indexes of a segment can name an offset."""
    return last_offset - base_offset <= RELATIVE_OFFSET_MAX
