"""Deletion of segments below a log's start while the log moves on, or fails."""

from __future__ import annotations

import asyncio
import errno
import itertools
from dataclasses import replace

import pytest

from storage.log import PartitionLog
from storage.retiring import retire_dead_segments
from tests.support.batches import make_batch
from tests.support.partition_log import SMALL, open_log, read_all
from tests.support.storage import MemoryDisk, append
from tests.support.worlds import virtual

SEGMENTS = 30
"""More than are removed in two turns of the event loop."""


def segmented(disk: MemoryDisk) -> PartitionLog:
    """A log with a batch in each segment."""
    log = open_log(disk, replace(SMALL, segment_bytes=1))
    for _ in range(SEGMENTS):
        append(log, make_batch())
    log.sync_now()
    return log


def log_files(disk: MemoryDisk) -> list[str]:
    return sorted(path for path in disk.inodes if path.endswith(".log"))


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(("start", "until"), [(5, 3), (3, 5), (3, 3)])
@virtual
async def test_segments_go_below_the_start_if_their_producers_are_on_disk(
    start: int, until: int, *, in_order: bool
) -> None:
    """``until`` was found before: the start may have risen since, or fallen with a new log."""
    disk = MemoryDisk()
    log = segmented(disk)
    log.advance_start_offset(start)
    assert await retire_dead_segments(log, disk, until, in_order=in_order) == 3
    assert log.segments.bases[0] == 3
    assert len(log_files(disk)) == SEGMENTS - 3
    assert read_all(log) == list(range(start, SEGMENTS))


@pytest.mark.parametrize("in_order", [False, True])
@virtual
async def test_a_log_that_fails_meanwhile_keeps_its_other_segments(*, in_order: bool) -> None:
    """Its files may belong to a new log at the same path by now."""
    disk = MemoryDisk()
    log = segmented(disk)
    log.advance_start_offset(SEGMENTS)
    log.leave_dead_segment()
    retiring = asyncio.ensure_future(retire_dead_segments(log, disk, SEGMENTS, in_order=in_order))
    await asyncio.sleep(0)
    log.go_offline(OSError(errno.EIO, "the disk is gone"))
    removed = await retiring
    assert 0 < removed < SEGMENTS / 2
    assert len(log_files(disk)) == SEGMENTS + 1 - removed


@virtual
async def test_segments_are_removed_one_after_the_other_where_a_crash_must_leave_no_gap() -> None:
    disk = MemoryDisk()
    log = segmented(disk)
    log.advance_start_offset(4)
    synced = len(disk.synced)
    assert await retire_dead_segments(log, disk, 4, in_order=True) == 4
    assert disk.synced[synced:] == [[log.directory]] * 4
    assert await retire_dead_segments(log, disk, 4, in_order=True) == 0
    assert disk.synced[synced + 4 :] == []


@virtual
async def test_the_event_loop_runs_while_many_segments_go() -> None:
    disk = MemoryDisk()
    log = segmented(disk)
    log.advance_start_offset(SEGMENTS)
    retiring = asyncio.ensure_future(retire_dead_segments(log, disk, SEGMENTS, in_order=False))
    counts = [len(log.segments.bases)]
    while not retiring.done():
        await asyncio.sleep(0)
        counts.append(len(log.segments.bases))
    removed_a_turn = [before - after for before, after in itertools.pairwise(counts)]
    assert await retiring == SEGMENTS - 1
    assert max(removed_a_turn) <= 8
