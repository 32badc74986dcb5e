"""Both indexes: Kafka's bytes, searching, truncating, wrong files."""

import struct

import pytest

from stele.ids import TopicPartition
from storage.config import LogConfig
from storage.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from storage.offset_index import decode_entries as decode_offsets
from storage.opening import open_log
from storage.segment import Segment
from storage.segment_indexes import SegmentIndexes
from storage.segment_room import names
from storage.time_index import FileTimeIndex, TimeIndex
from storage.time_index import decode_entries as decode_times
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, MemoryFile, append
from tests.support.timing import HandClock


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/d")
    return disk


def test_offset_entries_are_pairs_of_32_bits(disk: MemoryDisk) -> None:
    index = OffsetIndex("/d/a.index", 1000)
    index.append(1009, 4200)
    index.append(1030, 9000)
    index.flush(disk)
    data = disk.read_file("/d/a.index")
    assert data == struct.pack(">iiii", 9, 4200, 30, 9000)
    assert decode_offsets(data, 1000) == [(1009, 4200), (1030, 9000)]


def test_time_entries_are_64_and_32_bits(disk: MemoryDisk) -> None:
    index = TimeIndex("/d/a.timeindex", 1000)
    index.maybe_append(1_700_000_000_000, 1009)
    index.maybe_append(1_700_000_000_000, 1020)  # not later: no news
    index.maybe_append(1_700_000_000_001, 1009)  # not behind the last one
    index.maybe_append(1_700_000_000_005, 1030)
    index.flush(disk)
    data = disk.read_file("/d/a.timeindex")
    assert data == struct.pack(">qiqi", 1_700_000_000_000, 9, 1_700_000_000_005, 30)
    assert decode_times(data, 1000) == [(1_700_000_000_000, 1009), (1_700_000_000_005, 1030)]


def test_the_search_begins_at_a_batch_that_ends_below(disk: MemoryDisk) -> None:
    index = OffsetIndex("/d/a.index", 100)
    for last, position in ((109, 50), (119, 90), (129, 150)):
        index.append(last, position)
    assert index.entry_before(100) == (-1, 0)
    assert index.entry_before(109) == (-1, 0)
    assert index.entry_before(110) == (109, 50)
    assert index.entry_before(129) == (119, 90)
    assert index.entry_before(5000) == (129, 150)
    assert [index.last_position_upto(at) for at in (0, 49, 50, 149, 150, 999)] == [
        0, 0, 50, 90, 150, 150,
    ]  # fmt: skip


def test_a_truncated_index_rewrites_its_file(disk: MemoryDisk) -> None:
    index = OffsetIndex("/d/a.index", 0)
    for number in range(5):
        index.append(number * 10, number * 100 + 100)
    index.flush(disk)
    index.truncate_to_position(300)
    index.append(77, 300)
    index.flush(disk)
    again = OffsetIndex("/d/a.index", 0)
    assert again.load(disk, 1000)
    assert list(zip(again.offsets, again.positions, strict=True)) == [
        (0, 100), (10, 200), (77, 300),
    ]  # fmt: skip


def test_a_time_index_truncates_by_offset(disk: MemoryDisk) -> None:
    index = TimeIndex("/d/a.timeindex", 0)
    for number in range(1, 5):
        index.maybe_append(number * 1000, number * 10)
    index.flush(disk)
    index.truncate_to_offset(30)
    index.flush(disk)
    again = TimeIndex("/d/a.timeindex", 0)
    assert again.load(disk)
    assert again.last == (2000, 20)
    assert [again.offset_before(t) for t in (500, 1000, 1001, 2000, 2001)] == [0, 0, 10, 10, 20]


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        struct.pack(">iiii", 9, 100, 5, 200),  # falls
        struct.pack(">ii", -1, 100),
        struct.pack(">ii", 3, 5000),  # behind the log's end
    ],
)
def test_an_offset_index_that_cannot_be_right_is_refused(disk: MemoryDisk, data: bytes) -> None:
    disk.replace_file_now("/d/a.index", data)
    index = OffsetIndex("/d/a.index", 0)
    assert not index.load(disk, 1000)
    assert len(index) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 13,
        struct.pack(">qiqi", 10, 5, 20, 5),  # the offset stays
        struct.pack(">qiqi", 20, 3, 10, 5),  # the time falls
        struct.pack(">qiqi", -7, 0, 10, 5),  # no such time
        struct.pack(">qiqi", -7, 0, -6, 5),
        struct.pack(">qi", 10, -5),
    ],
)
def test_a_time_index_that_cannot_be_right_is_refused(disk: MemoryDisk, data: bytes) -> None:
    disk.replace_file_now("/d/a.timeindex", data)
    assert not TimeIndex("/d/a.timeindex", 0).load(disk)


def test_a_flush_that_failed_half_way_is_made_good(disk: MemoryDisk) -> None:
    index = OffsetIndex("/d/a.index", 0)
    index.append(1, 100)
    index.flush(disk)
    index.append(2, 200)
    disk.capacity = disk.used() + 3
    with pytest.raises(OSError, match="No space"):
        index.flush(disk)
    disk.capacity = None
    index.flush(disk)
    assert disk.read_file("/d/a.index") == struct.pack(">iiii", 1, 100, 2, 200)


@pytest.mark.parametrize(("shift", "is_found"), [(0, True), (7, False)])
def test_after_a_crash_the_last_entry_that_is_proven_must_lead_to_a_batch(
    disk: MemoryDisk, shift: int, is_found: bool
) -> None:
    log = open_log(disk, "/d/t-0", LogConfig(), HandClock(), key=TopicPartition("t", 0))
    for _ in range(3):
        append(log, make_batch())
    segment = log.segments.active
    size = segment.size // 3
    path, time_path = segment.index_paths()
    offsets, times = OffsetIndex(path, 0), TimeIndex(time_path, 0)
    for number in (1, 2):
        offsets.append(number, number * size + (shift if number == 1 else 0))
        times.maybe_append(1000 + number, number)
    offsets.flush(disk)
    times.flush(disk)
    indexes = SegmentIndexes(disk, path, time_path, 0)
    assert indexes.load_proven(segment, 2) == (size if is_found else None)


@pytest.mark.parametrize("entries", [[(5, 1), (5, 2)], [(5, 1), (6, 1)], [(5, 2), (6, 1)]])
def test_a_time_index_rises_in_times_and_in_offsets(
    disk: MemoryDisk, entries: list[tuple[int, int]]
) -> None:
    """The first and the last entry alone are checked when it is loaded."""
    data = b"".join(struct.pack(">qi", *entry) for entry in [(1, 0), *entries, (9, 9)])
    disk.replace_file_now("/d/a.timeindex", data)
    index = TimeIndex("/d/a.timeindex", 0)
    assert index.load(disk)
    assert not index.rises


def test_times_that_found_no_room_stay_in_memory_when_the_offsets_are_loaded(
    disk: MemoryDisk,
) -> None:
    segment = Segment(disk, "/d", 0, created_ms=0)
    indexes = SegmentIndexes(disk, "/d/0.index", "/d/0.timeindex", 0)
    indexes.offsets.flush(disk)
    indexes.times.maybe_append(1000, 0)
    indexes.unload()
    assert (indexes.has_offsets, indexes.has_times) == (False, True)
    assert indexes.load(segment, with_times=False, wait=True) is True
    assert indexes.has_times
    assert indexes.times.last == (1000, 0)


def test_the_farthest_offset_that_an_entry_can_name(disk: MemoryDisk) -> None:
    index = TimeIndex("/d/a.timeindex", 1000)
    index.maybe_append(5, 1000 + RELATIVE_OFFSET_MAX)
    index.maybe_append(6, 1001 + RELATIVE_OFFSET_MAX)
    assert index.last == (5, 1000 + RELATIVE_OFFSET_MAX)


def test_a_search_that_meets_entries_that_fall_begins_at_the_segments_start(
    disk: MemoryDisk,
) -> None:
    entries = [(1, 0), (2, 5), (8, 6), (3, 7), (10, 9)]
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    disk.replace_file_now("/d/a.timeindex", data)
    with FileTimeIndex(disk, "/d/a.timeindex", 100, 200) as index:
        assert index.offset_before(9) == 100
        assert index.offset_before(2) == 100
        assert index.last == (10, 109)


def test_times_that_were_loaded_stay_loaded(disk: MemoryDisk) -> None:
    segment = Segment(disk, "/d", 0, created_ms=0)
    indexes = SegmentIndexes(disk, "/d/0.index", "/d/0.timeindex", 0)
    indexes.times.maybe_append(1000, 0)
    indexes.flush()
    indexes.unload()
    assert (indexes.has_offsets, indexes.has_times) == (False, False)
    assert indexes.load(segment, with_times=True, wait=True) is True
    assert (indexes.has_offsets, indexes.has_times) == (True, True)


@pytest.mark.parametrize(("offset", "is_believed"), [(1, True), (2, False), (0, False)])
def test_the_last_entry_of_an_offset_index_leads_to_the_batch_that_it_names(
    disk: MemoryDisk, offset: int, is_believed: bool
) -> None:
    log = open_log(disk, "/d/t-0", LogConfig(), HandClock(), key=TopicPartition("t", 0))
    batch = make_batch()
    append(log, batch)
    append(log, make_batch())
    indexes = SegmentIndexes(disk, "/d/0.index", "/d/0.timeindex", 0)
    indexes.offsets.append(offset, len(batch))
    indexes.flush()
    indexes.unload()
    assert indexes.load(log.segments.active, with_times=False, wait=True) is is_believed


def test_times_are_loaded_when_they_are_asked_for_after_the_offsets(disk: MemoryDisk) -> None:
    segment = Segment(disk, "/d", 0, created_ms=0)
    indexes = SegmentIndexes(disk, "/d/0.index", "/d/0.timeindex", 0)
    indexes.times.maybe_append(1000, 0)
    indexes.flush()
    indexes.unload()
    assert indexes.load(segment, with_times=False, wait=True) is True
    assert (indexes.has_offsets, indexes.has_times) == (True, False)
    assert indexes.load(segment, with_times=True, wait=True) is True
    assert (indexes.has_times, indexes.times.last) == (True, (1000, 0))


@pytest.mark.parametrize("second", [(105, 50), (104, 50), (110, 10), (110, 9)])
def test_an_offset_index_rises_if_both_its_columns_do(second: tuple[int, int]) -> None:
    index = OffsetIndex("/d/a.index", 100)
    index.append(105, 10)
    assert index.rises
    index.append(*second)
    assert not index.rises


def test_an_offset_index_begins_behind_the_first_batch(disk: MemoryDisk) -> None:
    """A sector of zeroes at its beginning names the first batch, which has no entry."""
    index = OffsetIndex("/d/a.index", 100)
    index.append(105, 0)
    assert not index.rises
    index.append(110, 50)
    assert not index.rises
    index = OffsetIndex("/d/a.index", 100)
    index.append(105, 1)
    assert index.rises


def test_a_segment_names_offsets_up_to_the_greatest_of_an_entry() -> None:
    """They have 31 bits."""
    assert names(1000, 1000 + RELATIVE_OFFSET_MAX)
    assert not names(1000, 1001 + RELATIVE_OFFSET_MAX)


def test_an_offset_index_names_offsets_up_to_the_greatest_of_an_entry() -> None:
    index = OffsetIndex("/d/a.index", 1000)
    index.append(1000 + RELATIVE_OFFSET_MAX, 50)
    index.append(1001 + RELATIVE_OFFSET_MAX, 60)
    assert (index.last, len(index)) == ((1000 + RELATIVE_OFFSET_MAX, 50), 1)


@pytest.mark.parametrize(("got", "cold"), [(None, True), (15, True), (16, False)])
def test_an_offset_index_is_loaded_when_all_of_it_is_in_memory(
    disk: MemoryDisk, got: int | None, cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.replace_file_now("/d/a.index", struct.pack(">iiii", 1, 10, 2, 20))

    def read(file: MemoryFile, position: int, size: int) -> bytes | None:
        return None if got is None else file.read_now(position, min(size, got))

    monkeypatch.setattr(MemoryFile, "read", read)
    index = OffsetIndex("/d/a.index", 0)
    assert index.load_warm(disk, 100) == (("/d/a.index", 0, 16) if cold else True)
    assert len(index) == (0 if cold else 2)


def test_an_empty_offset_index_is_loaded_without_a_read(disk: MemoryDisk) -> None:
    disk.replace_file_now("/d/a.index", b"")
    disk.cold = True
    assert OffsetIndex("/d/a.index", 0).load_warm(disk, 100) is True
    assert OffsetIndex("/d/none.index", 0).load_warm(disk, 100) is False


def test_a_truncation_of_an_offset_index_that_removes_nothing_leaves_the_file_alone(
    disk: MemoryDisk,
) -> None:
    disk.replace_file_now("/d/a.index", struct.pack(">iiii", 1, 10, 2, 20))
    index = OffsetIndex("/d/a.index", 0)
    index.load(disk, 100)
    is_dirty = []
    for offset in (3, 2):
        index.truncate_to_offset(offset)
        is_dirty.append(index.dirty)
    assert is_dirty == [False, True]
    assert index.last == (1, 10)
