"""Which records are too old (``retention.ms``) or too many (``retention.bytes``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from stele.wire.batch import NO_TIMESTAMP
from storage.config import NO_LIMIT
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.log_types import LogView
from storage.time_search import largest_timestamp
from storage.turns import Slices

logger = logging.getLogger(__name__)

LOGS_PER_TURN: Final = 16
"""How many logs are examined in one turn of the event loop."""


def _any_log(log: PartitionLog) -> bool:
    return True


async def remove_dead(
    logs: Iterable[PartitionLog],
    is_due: Callable[[PartitionLog], bool] = _any_log,
    *,
    in_order: bool = False,
) -> int:
    """Delete the segments below the starts of the logs that are due. Returns how many. An error of
    one log does not stop the others.

    A log is due if its start is on disk. ``in_order``: the starts are not on disk, so each removal
    is, before the next. A crash then leaves no gap in any log.
    """
    removed = 0
    slices = Slices(1 if in_order else LOGS_PER_TURN)
    for log in logs:
        await slices.step()
        if log.offline is None and is_due(log):
            try:
                removed += await log.retire_dead_segments(in_order=in_order)
            except StorageError as error:  # the others can still make room
                logger.warning("%s", error)
            except Exception as error:
                log.fail(error)
    return removed


async def retained_from(log: LogView, stable_offset: int, now_ms: int) -> int:
    """The start offset that the log gets by ``retention.ms`` and ``retention.bytes`` now.

    Only whole segments are deleted, the oldest first, and nothing above ``stable_offset``, the last
    stable offset: records of an open transaction may still be committed, and then its readers must
    get them. A segment is deleted by time once its newest record is older than ``retention.ms``,
    and by size while the rest still has at least ``retention.bytes``. The active segment is no
    exception, as in Kafka: otherwise a partition that is not written to any more would keep its
    last records for ever. The log must then leave it (``PartitionLog.leave_dead_segment``). If
    records have no time, their segment's file tells when it was last written.

    This may wait for the disk: one read for each deleted segment and one more. If the log is
    truncated or compacted meanwhile, nothing is deleted this time. Raises OSError.
    """
    config, start_offset = log.config, log.start_offset
    if not config.delete_old:
        return start_offset
    unchanged = log.truncation_generation, log.segments.replacements
    excess = log.size_bytes - config.retention_bytes
    for segment in log.segments.all():
        if segment.size == 0 or segment.end_offset > stable_offset:
            break
        end_offset = segment.end_offset
        newest_ms = await largest_timestamp(log, segment)
        if segment not in log.segments:
            return log.start_offset
        if newest_ms == NO_TIMESTAMP:
            newest_ms = segment.written_ms()
        expired = config.retention_ms != NO_LIMIT and now_ms - newest_ms > config.retention_ms
        too_much = config.retention_bytes != NO_LIMIT and excess >= segment.size
        if not expired and not too_much:
            break
        excess -= segment.size
        if segment.end_offset > end_offset:  # it was written to meanwhile
            break
        start_offset = max(start_offset, end_offset)
    now = log.truncation_generation, log.segments.replacements
    return start_offset if now == unchanged else log.start_offset
