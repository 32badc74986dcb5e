"""Which records are too old or too many: ``retention.ms`` and ``retention.bytes``."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.batch import NO_TIMESTAMP
from storage.config import NO_LIMIT, LogConfig
from storage.segment import Segment


def retained_from(
    sealed: Sequence[Segment],
    active: Segment,
    config: LogConfig,
    *,
    start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """Where the log should begin now.

    Whole segments go, oldest first, never the active one and nothing above the high watermark.
    By time once the newest record is older than ``retention.ms``; by size while what would be
    left is at least ``retention.bytes``.
    """
    if not config.delete_old:
        return start_offset
    excess = active.size + sum(segment.size for segment in sealed) - config.retention_bytes
    for segment in sealed:
        if segment.end_offset > high_watermark:
            break
        newest_ms = segment.largest_timestamp_ms
        if newest_ms == NO_TIMESTAMP:
            newest_ms = segment.created_ms
        expired = config.retention_ms != NO_LIMIT and now_ms - newest_ms > config.retention_ms
        too_much = config.retention_bytes != NO_LIMIT and excess >= segment.size
        if not expired and not too_much:
            break
        excess -= segment.size
        start_offset = max(start_offset, segment.end_offset)
    return start_offset
