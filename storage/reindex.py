"""Rebuilding the indexes of a segment while the log is in use."""

from __future__ import annotations

import logging
from typing import Final

from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log_types import LogView
from storage.segment import Segment
from storage.turns import Slices
from world.disk import ReadFailedError

logger = logging.getLogger(__name__)

_BATCHES_PER_TURN: Final = 256


async def reindex(log: LogView, path: str) -> None:
    """Read the headers of the segment whose log file is ``path``, and replace its indexes.

    Does nothing if the segment is gone or its indexes are right by now. A fault in the segment
    itself is raised by the next read of it. Raises OSError for other faults.
    """
    segment = next((each for each in log.segments if each.path == path), None)
    if segment is None or not segment.indexes_lost:
        return
    logger.warning("the indexes of %s are missing or wrong: rebuilding them", path)
    try:
        await _scan(log, segment)
    except (CorruptLogError, ReadFailedError) as error:
        segment.damage = error


async def _scan(log: LogView, segment: Segment) -> None:
    generation = log.truncation_generation
    scanned = segment.beside()
    slices = Slices(_BATCHES_PER_TURN)
    interval = LogConfig().index_interval_bytes
    position = 0
    try:
        scanned.reset_summary()
        while position < segment.size:
            scanned.size = segment.size  # the segment may grow meanwhile
            for at, header in scanned.headers(position):
                size = header.size_bytes
                scanned.note(header.last_offset, header.max_timestamp_ms, at, size, interval)
                position = at + size
                if await slices.step() and (
                    log.truncation_generation != generation or segment not in log.segments
                ):
                    return
    finally:
        scanned.close()
    segment.take_indexes(scanned)
    if segment is not log.segments.active:
        try:
            segment.seal()
        except OSError as error:
            logger.warning("the indexes of %s stay in memory only: %s", segment.path, error)
            segment.hold_indexes()
