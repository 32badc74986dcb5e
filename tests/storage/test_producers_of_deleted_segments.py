"""Producers whose batches are only in segments that retention deletes, on full disks and after
crashes: a repeated batch of theirs stays a duplicate."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence

import pytest

from stele.ids import TopicPartition
from stele.world import Buffer
from storage import producer_state
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.opening import open_log
from storage.producer_files import ProducerFiles
from storage.retiring import keep_producers
from storage.snapshots import snapshot_offsets, snapshot_path
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, MemoryFile, append
from tests.support.timing import HandClock

PATH = "/d/t-0"
SMALL, LARGE = LogConfig(segment_bytes=1), LogConfig(segment_bytes=1 << 30)


class Full(MemoryDisk):
    """A disk that has room for records, but not for a producer snapshot while ``is_full``."""

    is_full = False

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        if self.is_full and path.endswith(".snapshot"):
            return NoRoom(self, path, self.inodes[path])
        return file


class NoRoom(MemoryFile):
    def append(self, buffers: Sequence[Buffer]) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk() -> Full:
    return Full()


def opened(disk: MemoryDisk, start_offset: int = 0) -> PartitionLog:
    return open_log(
        disk, PATH, LARGE, HandClock(), key=TopicPartition("t", 0), start_offset=start_offset
    )


def batch_of(producer: int) -> bytearray:
    return make_batch(1, producer=(producer, 0, 0))


def roll(log: PartitionLog, producer: int | None = None) -> int:
    """Begin a segment with a batch. Returns its base offset."""
    log.configure(SMALL)
    batch = make_batch(1) if producer is None else batch_of(producer)
    base = append(log, batch)
    log.configure(LARGE)
    return base


def knows(log: PartitionLog, producer: int) -> bool:
    """Whether a batch that was appended is a duplicate if it comes again."""
    before = log.end_offset
    append(log, batch_of(producer))
    return log.end_offset == before


@pytest.mark.parametrize("in_slices", [False, True])
async def test_a_segment_stays_while_no_snapshot_knows_its_producers(
    disk: Full, in_slices: bool
) -> None:
    log = opened(disk)
    append(log, batch_of(7))
    disk.is_full = True
    base = roll(log)
    assert snapshot_offsets(disk, PATH) == [], "not even a part of one"
    log.sync_now()
    log.advance_start_offset(base)
    assert (await log.retire_dead_segments() if in_slices else log.remove_dead_segments()) == 0
    disk.power_loss()
    log = opened(disk, base)
    assert log.start_offset == base
    assert knows(log, 7)


async def test_it_goes_as_soon_as_there_is_room_for_the_snapshot(
    disk: Full, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(disk)
    append(log, batch_of(7))
    disk.is_full = True
    base = roll(log)
    append(log, batch_of(8))  # after the snapshot's offset
    log.sync_now()
    log.advance_start_offset(base)
    assert await log.retire_dead_segments() == 0
    assert f"the segments from offset 0 to {base} stay until the disk has room" in caplog.text
    disk.is_full = False
    assert await log.retire_dead_segments() == 1
    assert snapshot_offsets(disk, PATH) == [base]
    disk.power_loss()
    log = opened(disk, base)
    assert knows(log, 7)
    log.truncate_to(base + 1)
    assert knows(log, 7)
    assert not knows(log, 8), "the snapshot is of its offset, not of the time it was written"


async def test_segments_below_an_earlier_snapshot_make_room(disk: Full) -> None:
    log = opened(disk)
    append(log, batch_of(7))
    second = roll(log, 8)
    disk.is_full = True
    third = roll(log)
    log.sync_now()
    log.advance_start_offset(third)
    assert await log.retire_dead_segments() == 1
    assert log.segment_bases == [second, third]
    disk.power_loss()
    log = opened(disk, third)
    assert knows(log, 7)
    assert knows(log, 8)


async def test_without_producers_a_full_disk_is_freed(disk: Full) -> None:
    log = opened(disk)
    append(log, make_batch(1))
    disk.is_full = True
    base = roll(log)
    log.sync_now()
    log.advance_start_offset(base)
    assert await log.retire_dead_segments() == 1


async def test_a_crash_before_the_snapshot_is_on_disk_costs_no_producer(disk: Full) -> None:
    """The new start was on disk already, and recovery need not remove what retention has left."""
    log = opened(disk)
    append(log, batch_of(7))
    base = roll(log)
    disk.remove(snapshot_path(PATH, base))
    log.sync_now()
    disk.power_loss()
    log = opened(disk, base)
    assert log.segment_bases == [0, base]
    assert await log.retire_dead_segments() == 1, "with the snapshot made anew"
    disk.power_loss()
    log = opened(disk, base)
    assert knows(log, 7)
    await log.retire_dead_segments()
    assert log.segment_bases == [base]


async def test_a_lost_snapshot_is_made_anew_of_its_own_offset(disk: Full) -> None:
    """One of a later offset goes when the log is truncated."""
    log = opened(disk)
    append(log, batch_of(7))
    second = roll(log, 8)
    third = roll(log, 9)
    append(log, batch_of(10))
    log.sync_now()
    for base in (second, third):
        disk.remove(snapshot_path(PATH, base))
    log.advance_start_offset(third)
    assert await log.retire_dead_segments() == 2
    assert snapshot_offsets(disk, PATH) == [third]
    log.truncate_to(third + 1)
    assert [knows(log, producer) for producer in (7, 8, 9)] == [True, True, True]
    log.truncate_to(third)
    assert [knows(log, producer) for producer in (7, 8, 9)] == [True, True, False]


async def test_a_log_that_begins_anew_meanwhile_needs_no_lost_snapshot(disk: Full) -> None:
    log = opened(disk)
    append(log, batch_of(7))
    base = roll(log, 8)
    disk.remove(snapshot_path(PATH, base))
    log.sync_now()
    log.advance_start_offset(base)
    asked = 0

    def files() -> ProducerFiles:
        nonlocal asked
        asked += 1
        if asked == 2:  # it was looked for
            log.reset_to(100, None)
        return log.producer_files

    await keep_producers(log, disk, base, files, now_ms=0)
    assert asked > 1
    assert log.segment_bases == [100]
    assert snapshot_offsets(disk, PATH) == []


class NoHandles(MemoryDisk):
    """A disk that cannot open time indexes while ``is_exhausted``."""

    is_exhausted = False

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if self.is_exhausted and path.endswith("0.timeindex"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().open(path, create=create)


async def test_an_index_that_cannot_be_sealed_costs_no_snapshot() -> None:
    disk = NoHandles()
    log = opened(disk)
    append(log, batch_of(7))
    disk.is_exhausted = True
    base = roll(log, 8)
    disk.is_exhausted = False
    append(log, batch_of(9))
    assert snapshot_offsets(disk, PATH) == [base]
    log.sync_now()
    log.advance_start_offset(base)
    assert await log.retire_dead_segments() == 1
    log.truncate_to(base)
    assert [knows(log, producer) for producer in (7, 8)] == [True, False]


async def test_a_lost_snapshot_that_cannot_be_written_deletes_nothing(disk: Full) -> None:
    log = opened(disk)
    append(log, batch_of(7))
    base = roll(log)
    disk.remove(snapshot_path(PATH, base))
    log.sync_now()
    disk.is_full = True
    log.advance_start_offset(base)
    assert await log.retire_dead_segments() == 0
    disk.is_full = False
    assert await log.retire_dead_segments() == 1
    disk.power_loss()
    assert knows(opened(disk, base), 7)


@pytest.mark.parametrize("producer", [7, None])
async def test_no_snapshot_is_written_where_none_is_missing(
    disk: Full, producer: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention comes again and again, and the state of many producers is large."""
    log = opened(disk)
    append(log, make_batch(1) if producer is None else batch_of(producer))
    assert await log.retire_dead_segments() == 0, "nothing goes"
    assert snapshot_offsets(disk, PATH) == []
    base = roll(log)
    append(log, make_batch(1))
    log.sync_now()
    log.advance_start_offset(base)
    assert await log.retire_dead_segments() == 1
    assert all(offset <= base for offset in snapshot_offsets(disk, PATH))
    assert caplog.messages == []


async def test_a_snapshot_of_an_earlier_process_is_on_disk_before_segments_go(disk: Full) -> None:
    """That process was killed before it had synced the snapshot."""
    log = opened(disk)
    append(log, batch_of(7))
    base = roll(log)
    log.close()
    log = opened(disk)
    log.sync_now()
    assert snapshot_offsets(disk, PATH) == [base]
    assert disk.inodes[snapshot_path(PATH, base)].durable == b""
    log.advance_start_offset(base)
    assert await log.retire_dead_segments() == 1
    await disk.sync([PATH])  # the names reach the disk at any time
    disk.power_loss()
    log = opened(disk, base)
    assert log.segment_bases == [base]
    assert knows(log, 7)


async def test_a_log_that_is_closed_meanwhile_gets_no_snapshot(
    disk: Full, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new log may have the same path by then, and no disk is full."""
    monkeypatch.setattr(producer_state, "_ENCODED_PER_SLICE", 1)
    log = opened(disk)
    for producer in range(5):
        append(log, batch_of(producer))
    base = roll(log)
    log.sync_now()
    for offset in snapshot_offsets(disk, PATH):
        disk.remove(snapshot_path(PATH, offset))
    log.advance_start_offset(base)
    retiring = asyncio.ensure_future(log.retire_dead_segments())
    await asyncio.sleep(0)
    log.close()
    synced = len(disk.synced)
    assert await retiring == 0
    assert snapshot_offsets(disk, PATH) == []
    assert disk.synced[synced:] == []
    assert caplog.messages == []


@pytest.mark.parametrize("in_slices", [False, True])
@pytest.mark.parametrize("producer", [8, None])
async def test_retention_that_deletes_nothing_syncs_nothing(
    disk: Full, producer: int | None, in_slices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes again and again to every log, and the snapshot where a log begins is on disk."""
    log = opened(disk)
    append(log, batch_of(7))
    base = roll(log, producer)
    log.sync_now()
    log.advance_start_offset(base)
    assert await log.retire_dead_segments() == 1
    synced = len(disk.synced)
    monkeypatch.setattr(disk, "sync_now", None)
    assert (await log.retire_dead_segments() if in_slices else log.remove_dead_segments()) == 0
    assert disk.synced[synced:] == []


def test_recovery_removes_what_a_snapshot_knows(disk: Full) -> None:
    log = opened(disk)
    append(log, batch_of(7))
    second = roll(log, 8)
    third = roll(log)
    log.sync_now()
    disk.remove(snapshot_path(PATH, third))
    log = opened(disk, third)
    assert log.segment_bases == [second, third]
    assert knows(log, 7)
    assert knows(log, 8)
