"""What a log takes from its topic's configuration. Defaults are Kafka's, but for the flush."""

from __future__ import annotations

from dataclasses import dataclass

NO_LIMIT = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log, by Kafka's topic-level names (dots as underscores)."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    """NO_LIMIT (-1): kept for ever."""
    retention_bytes: int = NO_LIMIT
    flush_messages: int = 1
    """1: an offset counts as durable when it is on disk. More: as soon as it is in the page cache,
    and a sync is asked for once so many records were written since the last."""
    log_append_time: bool = False
    """``message.timestamp.type=LogAppendTime``."""
    delete_old: bool = True
    """``cleanup.policy`` contains ``delete``."""
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    @property
    def strict_flush(self) -> bool:
        return self.flush_messages <= 1
