"""Truncations of several segments: their cost, and a crash in the middle."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from storage import opening
from storage.checkpoints import MetaProperties
from storage.config import LogConfig
from storage.cuts import CUT_FILE, encode_cut
from storage.directory import LogDirectory
from storage.errors import LogDirectoryError, StorageError
from storage.formatted import format_directory
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock

KEY = TopicPartition("t", 0)
DIRECTORY = "/d/t-0"
CONFIG = LogConfig(segment_bytes=1)  # each batch has a segment of its own
BATCHES = 6

Cut = Callable[[PartitionLog], object]


def open_log(disk: MemoryDisk, **checkpoints: Any) -> PartitionLog:
    return opening.open_log(disk, DIRECTORY, CONFIG, HandClock(), key=KEY, **checkpoints)


def written() -> tuple[MemoryDisk, PartitionLog]:
    disk = MemoryDisk()
    log = open_log(disk)
    for _ in range(BATCHES):
        append(log, make_batch())
    log.sync_now()
    return disk, log


def truncate(log: PartitionLog) -> None:
    log.truncate_to(2)


def reset(log: PartitionLog) -> None:
    log.reset_to(9)


def syncs_of(disk: MemoryDisk, log: PartitionLog, cut: Cut) -> int:
    count = 0
    sync = disk.sync_now

    def counted(path: str) -> None:
        nonlocal count
        count += 1
        sync(path)

    disk.sync_now = counted  # type: ignore[method-assign]
    cut(log)
    return count


@pytest.mark.parametrize("cut", [truncate, reset])
def test_a_cut_takes_as_many_syncs_for_many_segments_as_for_few(cut: Cut) -> None:
    disk, log = written()
    few = syncs_of(disk, log, cut)
    disk, log = written()
    for _ in range(50):
        append(log, make_batch())
    log.sync_now()
    assert syncs_of(disk, log, cut) == few


@pytest.mark.parametrize(("cut", "bases"), [(truncate, [0, 1, 2]), (reset, [9])])
def test_what_is_left_and_what_can_be_appended(cut: Cut, bases: list[int]) -> None:
    disk, log = written()
    cut(log)
    assert log.segment_bases == bases
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]
    assert CUT_FILE not in disk.list(DIRECTORY)
    end = log.end_offset
    append(log, make_batch())
    log.sync_now()
    disk.power_loss()
    again = open_log(disk, start_offset=log.start_offset, recovery_point=end)
    assert (again.start_offset, again.end_offset) == (log.start_offset, end + 1)


@given(st.integers(0, BATCHES - 2), st.sets(st.integers(0, BATCHES - 1)), st.booleans())
def test_recovery_goes_on_with_a_cut_whichever_segments_are_gone(
    keep: int, gone: set[int], renamed: bool
) -> None:
    """The directory's entries reach the disk in any order."""
    disk, log = written()
    log.close()
    disk.replace_file_now(f"{DIRECTORY}/{CUT_FILE}", encode_cut(keep))
    for base in gone:
        if base < keep:
            continue
        for suffix in (".index", ".timeindex", ".log"):
            path = f"{DIRECTORY}/{base:020d}{suffix}"
            if not disk.exists(path):
                continue
            if renamed:
                disk.rename(path, f"{path}.deleted")
            else:
                disk.remove(path)
    again = open_log(disk)
    assert (again.start_offset, again.end_offset) == (0, keep)
    assert CUT_FILE not in disk.list(DIRECTORY)
    append(again, make_batch())
    again.sync_now()
    disk.power_loss()
    assert open_log(disk, recovery_point=keep + 1).end_offset == keep + 1


def test_a_snapshot_of_producers_at_a_cut_is_kept() -> None:
    """It describes what is below. Only it knows producers whose records are deleted."""
    disk, log = written()
    append(log, make_batch(producer=(5, 0, 0)))
    append(log, make_batch())
    cut = log.end_offset - 1
    log.sync_now()
    log.close()
    disk.replace_file_now(f"{DIRECTORY}/{CUT_FILE}", encode_cut(cut))
    assert disk.exists(f"{DIRECTORY}/{cut:020d}.snapshot")
    again = open_log(disk)
    assert again.end_offset == cut
    assert disk.exists(f"{DIRECTORY}/{cut:020d}.snapshot")
    assert again.producers.get(5) is not None


@pytest.mark.parametrize("cut", [truncate, reset])
@pytest.mark.parametrize("step", range(12))
def test_a_power_loss_at_any_step_leaves_the_log_as_it_was_or_cut(cut: Cut, step: int) -> None:
    disk, log = written()
    left = step
    names = ("rename", "remove", "sync_now", "replace_file_now")

    def stop_at(operation: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object) -> None:
            nonlocal left
            if left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            left -= 1
            operation(*args)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(disk, name, stop_at(getattr(disk, name)))
        with suppress(StorageError):
            cut(log)
    disk.power_loss()
    again = open_log(disk)
    # Whole segments go first; the one that holds the offset is cut after that.
    assert (again.start_offset, again.end_offset) in ((0, BATCHES), (0, 3), (0, 2), (0, 0), (9, 9))


def test_on_a_full_disk_each_segment_is_gone_for_good_before_the_next_one() -> None:
    disk, log = written()
    replace = disk.replace_file_now

    def refuse(path: str, data: bytes) -> None:
        if path.endswith(CUT_FILE):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        replace(path, data)

    disk.replace_file_now = refuse  # type: ignore[method-assign]
    assert syncs_of(disk, log, truncate) >= BATCHES - 2
    assert log.end_offset == 2
    assert log.offline is None


@pytest.mark.parametrize("cut", [truncate, reset])
def test_a_cut_that_cannot_be_noted_changes_nothing(cut: Cut) -> None:
    disk, log = written()

    def refuse(path: str, data: bytes) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    disk.replace_file_now = refuse  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        cut(log)
    assert (log.offline, log.end_offset, log.segment_bases) == (None, BATCHES, [*range(BATCHES)])


@pytest.mark.parametrize("text", [b"", b"7", b"77", b"-1\n", b"x\n"])
def test_a_note_that_says_nothing_is_refused(text: bytes) -> None:
    disk, log = written()
    log.close()
    disk.replace_file_now(f"{DIRECTORY}/{CUT_FILE}", text)
    with pytest.raises(LogDirectoryError, match="does not hold an offset"):
        open_log(disk)


async def test_the_space_of_what_was_cut_is_freed_off_the_event_loop() -> None:
    disk = MemoryDisk()
    format_directory(disk, "/data", MetaProperties("cluster-a", 1, "dir-1"))
    directory = LogDirectory.open(disk, "/data", HandClock(), CONFIG)
    directory.start()
    log = directory.create("t", 0, bytes(16))
    for _ in range(BATCHES):
        append(log, make_batch())
    log.sync_now()
    discarded: list[str] = []
    discard = disk.discard

    async def noted(paths: Sequence[str]) -> None:
        discarded.extend(paths)
        await discard(paths)

    disk.discard = noted  # type: ignore[method-assign]
    log.truncate_to(2)
    assert discarded == []
    await directory.free_set_aside()
    assert len([path for path in discarded if path.endswith(".log.deleted")]) == BATCHES - 3
    assert not [name for name in disk.list("/data/t-0") if name.endswith(".deleted")]
    await directory.free_set_aside()
    await directory.close()
