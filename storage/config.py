"""The part of a topic's configuration that its logs use. Defaults are Kafka's, except for the
flush."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

NO_LIMIT = -1
NEVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one log under Kafka's topic-level names, with underscores for dots."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    """The time of a segment is shorter than ``segment_ms`` by at most this much."""
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    """NO_LIMIT (-1): records are kept for ever."""
    retention_bytes: int = NO_LIMIT
    flush_messages: int = 1
    """1: an offset counts as durable when it is on disk. With a larger value an offset counts as
    durable as soon as it is in the page cache, and a sync is requested after this many records."""
    flush_ms: int = NEVER_MS
    """How long written bytes may stay unsynced if no acknowledgement waits for their sync."""
    log_append_time: bool = False
    """``message.timestamp.type=LogAppendTime``."""
    delete_old: bool = True
    """``cleanup.policy`` contains ``delete``."""
    compact: bool = False
    """``cleanup.policy`` contains ``compact``."""
    min_cleanable_dirty_ratio: float = 0.5
    """Compaction waits until this part of the cleanable bytes is dirty."""
    min_compaction_lag_ms: int = 0
    """A segment with a record younger than this is not compacted."""
    max_compaction_lag_ms: int = NEVER_MS
    """A log with a dirty record older than this is compacted, whatever its dirty ratio."""
    delete_retention_ms: int = 24 * 3600 * 1000
    """How long a tombstone stays after the first round of compaction that found it."""
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    producer_ids_max: int = 100_000
    """A leader takes no batch of a further producer. A follower takes what its leader has."""

    @property
    def strict_flush(self) -> bool:
        return self.flush_messages <= 1

    def segment_time_ms(self, log_name: str, base_offset: int) -> int:
        """``segment_ms`` of one segment less its jitter (``segment.jitter.ms``).

        A compacted log begins a segment at least every ``max_compaction_lag_ms``, because the
        active one is not compacted. The jitter depends only on the log's name and the segment's
        base offset, so that all replicas begin segments at the same offsets.
        """
        longest_ms = self.segment_ms
        if self.compact:
            longest_ms = min(longest_ms, self.max_compaction_lag_ms)
        jitter_ms = min(self.segment_jitter_ms, longest_ms)
        if jitter_ms == 0:
            return longest_ms
        return longest_ms - zlib.crc32(f"{log_name}/{base_offset}".encode()) % jitter_ms
