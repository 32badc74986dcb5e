"""A log's part of its topic's configuration. Defaults are Kafka's, except for the flush."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

NO_LIMIT = -1
NEVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log, by Kafka's topic-level names (dots as underscores)."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    """A segment's time may be shorter than ``segment_ms`` by at most this much."""
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    """NO_LIMIT (-1): kept for ever."""
    retention_bytes: int = NO_LIMIT
    flush_messages: int = 1
    """1: an offset counts as durable when it is on disk. More: an offset counts as soon as it is in
    the page cache, and a sync is requested after this many records."""
    flush_ms: int = NEVER_MS
    """How long written bytes may wait for a sync that nobody waits for."""
    log_append_time: bool = False
    """``message.timestamp.type=LogAppendTime``."""
    delete_old: bool = True
    """``cleanup.policy`` contains ``delete``."""
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    @property
    def strict_flush(self) -> bool:
        return self.flush_messages <= 1

    def segment_time_ms(self, log_name: str, base_offset: int) -> int:
        """``segment_ms`` of one segment, its jitter taken off (``segment.jitter.ms``).

        Drawn from the log's name and the segment's base offset: all replicas must cut alike.
        """
        jitter_ms = min(self.segment_jitter_ms, self.segment_ms)
        if jitter_ms == 0:
            return self.segment_ms
        return self.segment_ms - zlib.crc32(f"{log_name}/{base_offset}".encode()) % jitter_ms
