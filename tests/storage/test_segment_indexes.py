"""Which index files of a segment are believed, and which of them are written."""

from __future__ import annotations

import errno
import struct
from typing import Final

import pytest

from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.segment_indexes import FRAME, SegmentIndexes
from storage.segment_names import parse_file_name
from tests.support.batches import make_batch
from tests.support.partition_log import open_log
from tests.support.storage import MemoryDisk, append

SIZE: Final = len(make_batch())
INDEX, TIMES = (f"/d/t-0/{0:020d}.{suffix}" for suffix in ("index", "timeindex"))
FIRST: Final = f"/d/t-0/{0:020d}.log"
MAGIC: Final = 16
"""Where a header has this field."""
DENSE = LogConfig(index_interval_bytes=1)


def filled(disk: MemoryDisk, count: int = 5) -> PartitionLog:
    """A log with an entry for each batch but the first."""
    log = open_log(disk, DENSE)
    for number in range(count):
        append(log, make_batch(timestamp_ms=1000 + number))
    log.sync_now()
    return log


def indexes_of(
    disk: MemoryDisk, entries: list[tuple[int, int]], times: list[tuple[int, int]]
) -> SegmentIndexes:
    """Index files with these entries."""
    disk.replace_file_now(INDEX, b"".join(struct.pack(">ii", *each) for each in entries))
    disk.replace_file_now(TIMES, b"".join(struct.pack(">qi", *each) for each in times))
    return SegmentIndexes(disk, INDEX, TIMES, 0)


def proven(entries: list[tuple[int, int]], times: list[tuple[int, int]], offset: int) -> int | None:
    disk = MemoryDisk()
    segment = filled(disk).segments.active
    return indexes_of(disk, entries, times).load_proven(segment, offset)


# ------------------------------------------------------------------------------- after a crash

ENTRIES = [(1, SIZE), (2, 2 * SIZE), (3, 3 * SIZE)]
TIME_ENTRIES = [(1001, 1), (1002, 2), (1003, 3)]


@pytest.mark.parametrize(
    ("offset", "position"), [(5, 3 * SIZE), (3, 2 * SIZE), (2, SIZE), (1, None), (0, None)]
)
def test_a_scan_begins_at_the_last_entry_below_what_is_proven(
    offset: int, position: int | None
) -> None:
    assert proven(ENTRIES, TIME_ENTRIES, offset) == position


@pytest.mark.parametrize(
    ("entries", "times"),
    [
        ([*ENTRIES[:2], (3, 3 * SIZE + 1)], TIME_ENTRIES),  # leads to no batch
        ([ENTRIES[0], ENTRIES[0], ENTRIES[1]], TIME_ENTRIES),
        (ENTRIES, [TIME_ENTRIES[0], TIME_ENTRIES[0], TIME_ENTRIES[1]]),
        (ENTRIES, [(1003, 3)]),  # nothing is known of the times below
        (ENTRIES, [(1003, 3), (1001, 1)]),
        ([], TIME_ENTRIES),
        (ENTRIES, []),
    ],
)
def test_without_sound_entries_a_scan_begins_with_the_segment(
    entries: list[tuple[int, int]], times: list[tuple[int, int]]
) -> None:
    assert proven(entries, times, 3) is None


@pytest.mark.parametrize("position", [0, -SIZE, 5 * SIZE - 1, 5 * SIZE - FRAME.size + 1])
def test_an_entry_that_leads_to_no_whole_header_is_not_believed(position: int) -> None:
    """Not even the last of entries that fall, which a truncation leaves."""
    disk = MemoryDisk()
    segment = filled(disk).segments.active
    indexes = SegmentIndexes(disk, INDEX, TIMES, 0)
    indexes.offsets.append(4, position)
    assert not indexes.truncate_to_position(segment, 6 * SIZE)


@pytest.mark.parametrize("stem", ["0000000000000000000x", "000", "0" * 21, "checkpoint-of-no-one"])
def test_a_file_of_another_name_is_no_segment(stem: str) -> None:
    disk = MemoryDisk()
    filled(disk).close()
    disk.replace_file_now(f"/d/t-0/{stem}.log", b"something else")
    assert parse_file_name(f"{stem}.log") is None
    assert open_log(disk, DENSE).segment_bases == [0]


@pytest.mark.parametrize("clean", [True, False])
def test_damage_where_the_index_leads_is_corruption_with_its_place(clean: bool) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.prepare_clean_shutdown()
    log.sync_now()
    log.close()
    disk.inodes[FIRST].data[4 * SIZE + MAGIC] = 1
    with pytest.raises(CorruptLogError) as caught:
        open_log(disk, DENSE, recovery_point=5, clean_shutdown=clean, high_watermark_checkpoint=5)
    assert caught.value.position == 4 * SIZE


@pytest.mark.parametrize("with_times", [False, True])
def test_what_is_in_memory_is_not_read_again(with_times: bool) -> None:
    """A read of records must not wait for the device on its account."""
    disk = MemoryDisk()
    segment = filled(disk).segments.active
    indexes = indexes_of(disk, ENTRIES, TIME_ENTRIES)
    indexes.has_offsets = indexes.has_times = False
    assert indexes.load(segment, with_times=with_times, wait=True) is True
    disk.unreadable.update((FIRST, INDEX, TIMES))
    assert indexes.load(segment, with_times=with_times, wait=False) is True
    assert indexes.offsets.last == ENTRIES[-1]


# ------------------------------------------------------------------------------- the files


def test_the_active_segment_gets_index_files_only_when_it_is_sealed() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    assert log.segments.active.flush_index_files() == []
    log.truncate_to(3)
    assert not disk.exists(INDEX)
    assert not disk.exists(TIMES)


def test_index_files_that_are_right_are_not_synced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.segments.active.flush_indexes()
    assert log.segments.active.flush_index_files() == []
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync_now", synced.append)
    log.truncate_to(5)
    assert synced == [], "nothing is cut"
    append(log, make_batch(timestamp_ms=2000))
    assert log.segments.active.flush_index_files() == [INDEX, TIMES]
    log.truncate_to(5)
    assert {INDEX, TIMES} <= {*synced}


def test_after_a_cut_index_files_name_nothing_behind_it_though_the_disk_is_full() -> None:
    """Nothing is written to them: recovery relies on what they say below the recovery point."""
    disk = MemoryDisk()
    log = filled(disk)
    log.segments.active.flush_indexes()
    disk.append_error = errno.ENOSPC
    log.truncate_to(3)
    assert disk.read_file(INDEX) == b"".join(struct.pack(">ii", *each) for each in ENTRIES[:2])
    assert disk.read_file(TIMES)[-4:] <= struct.pack(">i", 2)
    assert log.read(2, 1).next_offset == 3
