"""Deletion of segments below a log's start, while the log is in use."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from storage.log_types import LogView
from storage.producer_files import ProducerFiles
from storage.producer_recovery import write_missing_snapshot
from storage.segment_names import DELETED_SUFFIX
from storage.snapshots import snapshot_offsets, snapshot_path
from storage.steps import take_turns, while_true
from storage.turns import Slices
from world.disk import Disk

logger = logging.getLogger(__name__)

_SEGMENTS_PER_TURN: Final = 8
_SNAPSHOTS_PER_TURN: Final = 32


async def retire_dead_segments(log: LogView, disk: Disk, until: int, *, in_order: bool) -> int:
    """Remove the segments below the log's start and free their space. Returns how many. ``until``:
    the offset below which the producers are on disk. The start may have moved on since.

    Without ``in_order`` the start is on disk, so recovery removes the segments that a crash leaves.
    With ``in_order`` it is not on disk: each removal is on disk before the next one, because a
    crash must not leave a gap. The files are renamed first, because their space is freed off the
    event loop, and a new log may get the same path meanwhile. Raises OSError: then it may be called
    again.
    """
    slices = Slices(_SEGMENTS_PER_TURN)
    aside: list[str] = []
    count = 0
    while log.offline is None and (
        paths := log.segments.set_aside_first(min(until, log.start_offset))
    ):
        aside += paths
        count += 1
        if in_order:
            await disk.sync([log.directory])
        else:
            await slices.step()
    if count:
        aside += await _set_snapshots_aside(log, disk)
        await disk.discard(aside)
    return count


def known_from(log: LogView, disk: Disk, until: int) -> int:
    """The base offset of the first segment that stays if segments below ``until`` go.

    Without a snapshot at that offset nothing would know the producers of the deleted batches. Then
    the segments from an earlier snapshot on stay, too.
    """
    bases = log.segments.bases
    base = log.segments.first_base_above(until)
    if not len(log.producers):
        return base
    at = bisect_left(bases, base)
    while at and not disk.exists(snapshot_path(log.directory, bases[at])):
        at -= 1
    return bases[at]


def snapshot_to_sync(log: LogView, disk: Disk, base: int) -> str | None:
    """The producer snapshot at ``base``, the first segment that stays. It must be on disk before
    the others go. An earlier process may have written it, and may have been killed before it synced
    it."""
    if base == log.segments.bases[0] or not len(log.producers):
        return None
    path = snapshot_path(log.directory, base)
    return path if disk.exists(path) else None


async def keep_producers(
    log: LogView, disk: Disk, until: int, files: Callable[[], ProducerFiles], now_ms: int
) -> int:
    """Complete the begun producer snapshots, and have on disk those of the producers of batches
    below ``until``: once their segments are gone, nothing else knows them. ``files`` gives the
    present snapshots, since the log may be reset meanwhile. Raises OSError.

    Returns until where segments may go. On a full disk that may be less than ``until``: the
    segments below an earlier snapshot go, which makes room for the one that is missing.
    """
    base = log.segments.first_base_above(until)
    lacks_snapshot = snapshot_to_sync(log, disk, base) is None and len(log.producers) > 0
    is_lost = lacks_snapshot and base != log.segments.bases[0] and not files().is_coming(base)
    paths: list[str] = []
    try:
        while log.offline is None and files().is_begun:
            if (path := files().go_on(log.segments.bases)) is not None:
                paths.append(path)
            await asyncio.sleep(0)
        if log.offline is None:
            paths += files().write_refused(log.segments.bases)
        if is_lost:
            paths += await _snapshot_of(log, disk, base, now_ms)
    except OSError as error:
        logger.warning("%s: producer snapshot not written: %s", log.directory, error)
    if log.offline is not None:
        return until
    known = known_from(log, disk, until)
    if known < base:
        logger.warning(
            "%s: the segments from offset %d to %d stay until the disk has room for the producer"
            " snapshot at %d",
            log.directory,
            known,
            base,
            base,
        )
    if (path := snapshot_to_sync(log, disk, known)) is not None:
        paths.append(path)
    if paths:
        await disk.sync([*dict.fromkeys(paths), log.directory])
    return min(until, known)


async def _snapshot_of(log: LogView, disk: Disk, base: int, now_ms: int) -> list[str]:
    """Write the snapshot at ``base``, which was lost with an earlier process. Returns its path, or
    nothing if the log has changed meanwhile. Raises CorruptLogError, OSError.

    One of the present state would not do: it goes with a truncation.
    """
    generation = log.truncation_generation
    gone = [each for each in log.segments.sealed() if each.end_offset <= base]
    if not gone:
        return []  # the log has begun anew
    steps = while_true(
        lambda: log.offline is None and log.truncation_generation == generation,
        write_missing_snapshot(disk, log.directory, gone, now_ms),
    )
    path = await take_turns(disk, steps)
    return [] if path is None else [path]


async def _set_snapshots_aside(log: LogView, disk: Disk) -> list[str]:
    """Rename the producer snapshots below the first segment, which recovery never needs. Returns
    the new paths."""
    slices = Slices(_SNAPSHOTS_PER_TURN)
    aside: list[str] = []
    if log.offline is not None:
        return aside
    for offset in snapshot_offsets(disk, log.directory):
        if log.offline is not None or offset >= log.segments.bases[0]:
            break
        path = snapshot_path(log.directory, offset)
        if disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)
            aside.append(path + DELETED_SUFFIX)
        await slices.step()
    return aside
