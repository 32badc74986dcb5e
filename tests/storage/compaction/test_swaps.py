"""What a crash leaves of a compacted segment that was to take the place of others."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable

import pytest

from stele.wire.batch import Record
from storage.errors import LogDirectoryError
from storage.log import PartitionLog
from storage.segment_names import CLEANED_SUFFIX, segment_paths, txn_index_path
from storage.snapshots import snapshot_path
from storage.swaps import SWAP_FILE, encode_swap, finish_swap, swap_path
from tests.support.compaction import (
    DIRECTORY,
    compact,
    compacting,
    last_values,
    opened,
    records,
    roll,
    write,
)
from tests.support.storage import Inode, MemoryDisk, MemoryFile

Entries = dict[str, Inode]


class CrashError(BaseException):
    """The machine lost its power."""


class CrashingDisk(MemoryDisk):
    """Loses its power before a given step. Changes of entries that were not synced are on disk or
    not, each by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.crash_at: int | None = None
        self._changes: list[Callable[[Entries], None]] = []

    def _step(self) -> None:
        self.steps += 1
        if self.crash_at is not None and self.steps >= self.crash_at:
            raise CrashError

    def lose_power(self, rng: random.Random) -> None:
        for change in self._changes:
            if rng.random() < 0.5:
                change(self.durable_inodes)
        self._changes.clear()
        self.crash_at = None
        self.power_loss()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path in self.inodes:
            return super().open(path)
        self._step()
        file = super().open(path, create=create)
        self._changes.append(lambda entries: entries.update({path: file.inode}))
        return file

    def rename(self, source: str, target: str) -> None:
        self._step()
        inode = self.inodes[source]
        super().rename(source, target)

        def change(entries: Entries) -> None:
            if entries.get(source) is inode:
                del entries[source]
            entries[target] = inode

        self._changes.append(change)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)

        def change(entries: Entries) -> None:
            entries.pop(path, None)

        self._changes.append(change)

    def replace_file_now(self, path: str, data: bytes) -> None:
        self._step()
        inode = self.inodes[path] = Inode(bytearray(data), bytes(data))
        self._changes.append(lambda entries: entries.update({path: inode}))
        self.sync_now(DIRECTORY)

    def _capture(self, path: str) -> Callable[[], None]:
        self._step()
        settle = super()._capture(path)
        covered = len(self._changes) if path in self.directories else 0

        def settled() -> None:
            self._step()
            settle()
            del self._changes[:covered]

        return settled


def filled() -> tuple[CrashingDisk, PartitionLog]:
    """Segments of some three batches. The next round leaves a third of them."""
    disk = CrashingDisk()
    log = opened(disk)
    for number in range(16):
        write(log, [(b"k%d" % (number % 5), b"v%d" % number)], epoch=number // 6)
        if number % 4 == 3:
            write(log, [(b"gone", None)], epoch=number // 6)
    roll(log)
    log.sync_now()
    disk.sync_now("/d")
    disk.sync_now(DIRECTORY)
    return disk, log


def steps_of_a_round() -> int:
    disk, log = filled()
    before = disk.steps
    compact(log, disk)
    return disk.steps - before


STEPS = steps_of_a_round()


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_crash_at_any_step_leaves_the_old_segments_or_the_new_ones(step: int) -> None:
    for seed in range(5):
        disk, log = filled()
        before = records(log)
        end = log.end_offset
        disk.crash_at = disk.steps + step
        with pytest.raises(CrashError):
            asyncio.run(compacting(log, disk))
        disk.lose_power(random.Random(seed))
        again = opened(disk, recovery_point=end, high_watermark_checkpoint=end)
        assert_same_log(again, before, end)
        left = disk.list(DIRECTORY)
        assert SWAP_FILE not in left
        assert not [name for name in left if name.endswith(".cleaned")]
        write(again, [(b"k0", b"new")], epoch=2)
        roll(again)
        compact(again, disk)
        assert last_values(records(again)) == last_values(before) | {b"k0": b"new", b"roll": b""}


def assert_same_log(log: PartitionLog, before: list[Record], end: int) -> None:
    after = records(log)
    assert log.end_offset == end
    assert set(after) <= set(before)
    assert [each.offset for each in after] == sorted({each.offset for each in after})
    assert last_values(after) == last_values(before)
    for segment, following in itertools.pairwise(log.segments.all()):
        headers = [header for _, header in segment.headers(0)]
        assert headers[-1].next_offset == segment.end_offset == following.base_offset
        # Each segment is one of the old ones or a new one: what its index names stands there.
        for offset in range(segment.base_offset, segment.end_offset):
            first = log.read(offset, 1, limit_offset=end)
            assert first.next_offset > offset


@pytest.mark.parametrize("step", range(1, STEPS + 1, 3))
def test_a_crash_in_the_recovery_after_a_crash(step: int) -> None:
    for later in range(1, 12, 2):
        disk, log = filled()
        before = records(log)
        end = log.end_offset
        disk.crash_at = disk.steps + step
        with pytest.raises(CrashError):
            asyncio.run(compacting(log, disk))
        disk.lose_power(random.Random(step))
        disk.crash_at = disk.steps + later
        try:
            opened(disk, recovery_point=end)
        except CrashError:
            disk.lose_power(random.Random(later))
        disk.crash_at = None
        assert_same_log(opened(disk, recovery_point=end), before, end)


def cut_short(log: PartitionLog) -> None:
    log.truncate_to(7)


def begin_anew(log: PartitionLog) -> None:
    log.reset_to(3)


@pytest.mark.parametrize("change", [cut_short, begin_anew])
@pytest.mark.parametrize("turns", range(1, 60))
def test_no_crash_undoes_a_cut_in_the_middle_of_a_round(
    change: Callable[[PartitionLog], None], turns: int
) -> None:
    async def scenario(disk: CrashingDisk, log: PartitionLog) -> None:
        task = asyncio.create_task(compacting(log, disk))
        for _ in range(turns):
            await asyncio.sleep(0)
        change(log)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for seed in range(3):
        disk, log = filled()
        asyncio.run(scenario(disk, log))
        for number in range(10):  # among them segments with bases of removed ones
            write(log, [(b"new", b"%d" % number)], epoch=3)
        log.sync_now()
        expected, start, end = records(log), log.start_offset, log.end_offset
        disk.lose_power(random.Random(seed))
        again = opened(disk, start_offset=start)
        assert (records(again), again.start_offset, again.end_offset) == (expected, start, end)


@pytest.mark.parametrize("note", [b"seven\n", b"0 seven\n", b"0 -7\n", b"0 7", b"0 7 9\n"])
def test_a_malformed_note_is_reported(note: bytes) -> None:
    disk, log = filled()
    log.close()
    disk.replace_file_now(f"{DIRECTORY}/{SWAP_FILE}", note)
    with pytest.raises(LogDirectoryError, match="does not hold two offsets"):
        opened(disk)


@pytest.mark.parametrize("renamed", [False, True])
def test_recovery_puts_a_segment_into_the_place_of_those_that_the_note_names(
    renamed: bool,
) -> None:
    """The crash came before the renames or after them. The neighbours stay, and so do the snapshots
    of producers: a recovery begins with the newest."""
    disk = MemoryDisk()
    for base in (0, 5, 7, 9):
        for path in (*segment_paths("/d", base), txn_index_path("/d", base)):
            disk.replace_file_now(path, b"old %d" % base)
        disk.replace_file_now(snapshot_path("/d", base), b"snapshot")
    paths = (*segment_paths("/d", 5), txn_index_path("/d", 5))
    cleaned = (*segment_paths("/d", 5, CLEANED_SUFFIX), txn_index_path("/d", 5, CLEANED_SUFFIX))
    for path in paths if renamed else cleaned:
        disk.replace_file_now(path, b"new")
    disk.replace_file_now("/d/leader-epoch-checkpoint", b"0\n0\n")
    disk.replace_file_now(swap_path("/d"), encode_swap(5, 9))
    finish_swap(disk, "/d")
    disk.power_loss()
    assert [disk.read_file(path) for path in paths] == [b"new"] * 4
    assert not any(map(disk.exists, cleaned))
    assert not any(map(disk.exists, (*segment_paths("/d", 7), txn_index_path("/d", 7))))
    for base in (0, 9):
        assert disk.read_file(segment_paths("/d", base)[0]) == b"old %d" % base
    assert all(disk.exists(snapshot_path("/d", base)) for base in (0, 5, 7, 9))
    assert not disk.exists(swap_path("/d"))
    finish_swap(disk, "/d")  # there is none any more
