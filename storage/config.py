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
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    @property
    def strict_flush(self) -> bool:
        return self.flush_messages <= 1

    def segment_time_ms(self, log_name: str, base_offset: int) -> int:
        """``segment_ms`` of one segment less its jitter (``segment.jitter.ms``).

        The jitter depends only on the log's name and the segment's base offset, so that all
        replicas begin segments at the same offsets.
        """
        jitter_ms = min(self.segment_jitter_ms, self.segment_ms)
        if jitter_ms == 0:
            return self.segment_ms
        return self.segment_ms - zlib.crc32(f"{log_name}/{base_offset}".encode()) % jitter_ms
