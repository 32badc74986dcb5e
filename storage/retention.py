"""Which records are too old or too many: ``retention.ms`` and ``retention.bytes``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from stele.wire.batch import NO_TIMESTAMP
from storage.config import NO_LIMIT
from storage.log import PartitionLog
from storage.log_types import LogView
from storage.time_search import largest_timestamp

LOGS_PER_TURN: Final = 16
"""So many are looked at in one turn of the event loop."""


async def remove_in_order(logs: Iterable[PartitionLog]) -> int:
    """Delete what lies below the logs' starts, which are not on disk: a crash must leave no gap in
    any log. How many segments went. Raises StorageError."""
    removed = 0
    for log in logs:
        await asyncio.sleep(0)
        if log.offline is None:
            removed += await log.retire_dead_segments(in_order=True)
    return removed


async def retained_from(log: LogView, high_watermark: int, now_ms: int) -> int:
    """Where the log would begin if ``retention.ms`` and ``retention.bytes`` were applied now.

    Whole segments go, oldest first, never the active one and nothing above ``high_watermark``.
    By time once the newest record is older than ``retention.ms``; by size while what would be
    left is at least ``retention.bytes``. May wait for the disk, one read for each segment that
    goes and one more; of a log that was cut meanwhile nothing goes this time. Raises OSError.
    """
    config, start_offset = log.config, log.start_offset
    if not config.delete_old:
        return start_offset
    generation = log.truncation_generation
    excess = log.size_bytes - config.retention_bytes
    for segment in log.segments.sealed():
        if segment.end_offset > high_watermark:
            break
        newest_ms = await largest_timestamp(log, segment)
        if newest_ms == NO_TIMESTAMP:
            newest_ms = segment.created_ms
        expired = config.retention_ms != NO_LIMIT and now_ms - newest_ms > config.retention_ms
        too_much = config.retention_bytes != NO_LIMIT and excess >= segment.size
        if not expired and not too_much:
            break
        excess -= segment.size
        start_offset = max(start_offset, segment.end_offset)
    return start_offset if log.truncation_generation == generation else log.start_offset
