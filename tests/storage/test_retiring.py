"""Deletion of segments below a log's start while the log moves on, or fails."""

from __future__ import annotations

import asyncio
import errno
import itertools
from dataclasses import replace

import pytest

from stele.ids import TopicPartition
from storage.checkpoints import RECOVERY_POINT_FILE, MetaProperties, read_offsets
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import StorageError
from storage.formatted import format_directory
from storage.log import PartitionLog
from storage.retention import remove_dead
from storage.retiring import retire_dead_segments
from storage.segment_names import SNAPSHOT_SUFFIX
from storage.snapshots import snapshot_offsets
from tests.support.batches import make_batch
from tests.support.partition_log import SMALL, open_log, read_all
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import HandClock
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
async def test_a_log_whose_directory_is_gone_meanwhile_is_no_failure() -> None:
    """Its topic was deleted: the directory has another name by now."""
    disk = MemoryDisk()
    log = segmented(disk)
    log.advance_start_offset(SEGMENTS)
    retiring = asyncio.ensure_future(retire_dead_segments(log, disk, SEGMENTS, in_order=False))
    await asyncio.sleep(0)
    log.go_offline(OSError(errno.ESHUTDOWN, "it was closed"))
    disk.remove_tree(log.directory)
    assert await retiring > 0


@virtual
async def test_a_log_that_fails_meanwhile_keeps_its_other_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new log may have snapshots at the same paths by now."""
    disk = MemoryDisk()
    log = open_log(disk, replace(SMALL, segment_bytes=1))
    for number in range(5):
        append(log, make_batch(producer=(7, 0, number)))
    log.sync_now()
    log.advance_start_offset(4)
    before = snapshot_offsets(disk, log.directory)
    assert before == [1, 2, 3, 4]
    rename = disk.rename

    def failing(source: str, target: str) -> None:
        rename(source, target)
        if source.endswith(SNAPSHOT_SUFFIX):
            log.go_offline(OSError(errno.EIO, "the disk is gone"))

    monkeypatch.setattr(disk, "rename", failing)
    assert await retire_dead_segments(log, disk, 4, in_order=False) == 4
    assert snapshot_offsets(disk, log.directory) == before[1:]


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


# ---------------------------------------------------------------------- of a directory


T = TopicPartition("t", 0)


def directory_with(disk: MemoryDisk, high_watermark: int) -> tuple[LogDirectory, PartitionLog]:
    """A log directory with one log of ten records in several segments."""
    format_directory(disk, "/data", MetaProperties("cluster-a", 1, "dir-1"))
    directory = LogDirectory.open(disk, "/data", HandClock(), LogConfig(segment_bytes=400))
    directory.start()
    log = directory.create("t", 0, bytes(range(16)))
    for _ in range(10):
        append(log, make_batch(size=50))
    commit(log, high_watermark)
    return directory, log


@virtual
async def test_retention_passes_over_a_log_that_is_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has said why before, and retention comes again and again."""
    disk = MemoryDisk()
    offline, log = segmented(disk), segmented(MemoryDisk())
    for each in (offline, log):
        each.advance_start_offset(5)
    offline.go_offline(OSError(errno.EIO, "a test"))
    assert await remove_dead([offline, log]) == 5
    assert await remove_dead([log], lambda each: False) == 0
    assert caplog.messages == []


@virtual
async def test_a_directory_that_fails_deletes_nothing_and_says_so() -> None:
    """Unlike a full one, in which the deletion makes room."""
    disk = MemoryDisk()
    directory, log = directory_with(disk, 10)
    await directory.flush()
    log.advance_start_offset(10)
    before = log_files(disk)
    disk.sync_error = errno.EIO
    with pytest.raises(StorageError):
        await directory.retire_dead_segments()
    assert directory.offline is not None
    assert log_files(disk) == before


@pytest.mark.parametrize("high_watermark", [4, 10])
@virtual
async def test_recovery_points_are_lowered_once_to_where_truncations_seldom_go_below(
    high_watermark: int,
) -> None:
    disk = MemoryDisk()
    directory, _ = directory_with(disk, high_watermark)
    await directory.flush()
    await directory.close()
    path = f"/data/{RECOVERY_POINT_FILE}"
    assert read_offsets(disk, path) == {T: 10}
    closed = disk.inodes[path]
    directory = LogDirectory.open(disk, "/data", HandClock(), LogConfig(segment_bytes=400))
    directory.start()
    assert read_offsets(disk, path) == {T: high_watermark}
    assert (disk.inodes[path] is closed) == (high_watermark == 10), "it waits for the device"
    await directory.close()
