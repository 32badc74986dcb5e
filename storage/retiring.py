"""Deleting the segments that a log's start has passed, while the log is in use."""

from __future__ import annotations

from typing import Final

from storage.log_types import LogView
from storage.segment_names import DELETED_SUFFIX
from storage.snapshots import snapshot_offsets, snapshot_path
from storage.turns import Slices
from world.disk import Disk

_SEGMENTS_PER_TURN: Final = 8
_SNAPSHOTS_PER_TURN: Final = 32


async def retire_dead_segments(log: LogView, disk: Disk, *, in_order: bool) -> int:
    """Take the segments below the log's start out of it and free their space; return how many.

    The start is on disk, so recovery removes what a crash leaves of them. With ``in_order`` the
    start is not on disk: each segment is gone for good before the next one goes, since a crash must
    leave no gap. The files are renamed first, because their space is freed off the event loop:
    meanwhile another log may be made under the same path. Raises OSError: it may be called again.
    """
    slices = Slices(_SEGMENTS_PER_TURN)
    aside: list[str] = []
    count = 0
    while log.offline is None and (paths := log.segments.set_aside_first(log.start_offset)):
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


async def _set_snapshots_aside(log: LogView, disk: Disk) -> list[str]:
    """The producer snapshots below the first segment: recovery never goes back to them."""
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
