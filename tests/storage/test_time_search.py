"""Searches by time: which records count, which batches are looked into, what is not in memory."""

from __future__ import annotations

import errno

import pytest

from stele.wire.batch import NO_TIMESTAMP, BatchBuilder
from storage import time_search
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.log_types import LogView, TimestampOffset
from storage.time_index import ColdIndexError, FileTimeIndex, TimeIndex, WrongIndexError
from storage.time_search import largest_timestamp
from tests.support.partition_log import open_log
from tests.support.storage import MemoryDisk, MemoryFile, append

PATH = "/d/x.timeindex"
ONE_SEGMENT = LogConfig()
MANY_SEGMENTS = LogConfig(segment_bytes=1)


def timed(config: LogConfig, *batches: list[int], disk: MemoryDisk | None = None) -> PartitionLog:
    """A log with a batch for each list of times."""
    log = open_log(disk or MemoryDisk(), config)
    for times in batches:
        builder = BatchBuilder()
        for time_ms in times:
            builder.append(None, b"v", timestamp_ms=time_ms)
        append(log, builder.build())
    return log


@pytest.mark.parametrize("config", [ONE_SEGMENT, MANY_SEGMENTS])
@pytest.mark.parametrize(
    ("batches", "start", "limit", "expected"),
    [
        pytest.param([[9], [1]], 1, 2, (1, 1), id="deleted"),
        pytest.param([[1], [9]], 0, 1, (1, 0), id="not committed"),
        pytest.param([[1, 9]], 0, 1, (1, 0), id="not committed, of one batch"),
        pytest.param([[9, 1, 20]], 0, 2, (9, 0), id="the first of one batch"),
        pytest.param([[20, 1, 9, 2]], 1, 4, (9, 2), id="within a batch"),
        pytest.param([[5], [5]], 0, 2, (5, 0), id="the first of several"),
        pytest.param([[-1], [-1]], 0, 2, None, id="no times"),
        pytest.param([[5]], 1, 1, None, id="nothing counts"),
        pytest.param([], 0, 0, None, id="empty"),
    ],
)
async def test_the_newest_of_the_records_that_count(
    config: LogConfig,
    batches: list[list[int]],
    start: int,
    limit: int,
    expected: tuple[int, int] | None,
) -> None:
    log = timed(config, *batches)
    log.advance_start_offset(start)
    found = await log.max_timestamp_offset(limit)
    assert (found and (found.timestamp_ms, found.offset)) == expected


async def test_an_older_batch_is_not_looked_into() -> None:
    """Its records need not be decompressed, so its damage is not noticed here."""
    disk = MemoryDisk()
    log = timed(ONE_SEGMENT, [1, 2], [7], disk=disk)
    disk.flip(log.segments.active.path, 70)
    found = await log.offset_for_timestamp(5)
    assert found is not None
    assert found.offset == 2


@pytest.mark.parametrize(
    ("field", "reason"), [(16, "magic"), (30, "the CRC does not match"), (62, "CRC")]
)
@pytest.mark.parametrize("is_newest", [False, True])
async def test_damage_that_a_search_meets_is_corruption_with_its_place(
    field: int, reason: str, is_newest: bool
) -> None:
    """So the replica is given up, and not only the one search refused. The damaged byte is of the
    magic, of what the CRC covers in the header, or of a record."""
    disk = MemoryDisk()
    log = timed(ONE_SEGMENT, [1, 20], [2, 30], [3, 40, 1], disk=disk)
    position = log.segments.active.locate(4)
    assert isinstance(position, int)
    disk.flip(log.segments.active.path, position + field)
    search = log.max_timestamp_offset(6) if is_newest else log.offset_for_timestamp(35)
    with pytest.raises(CorruptLogError, match=rf"at byte {position} \(offset 4\): .*{reason}"):
        await search


async def test_a_log_that_is_emptied_during_a_search_has_no_newest_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was truncated when its greatest time was known, and not yet the record that has it."""
    log = timed(ONE_SEGMENT, [5], [9])
    search, calls = time_search.first_at_or_after, 0

    async def cut_second(log: LogView, timestamp_ms: int) -> TimestampOffset | None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first one found a record that is not committed
            assert isinstance(log, PartitionLog)
            log.truncate_to(0)
        return await search(log, timestamp_ms)

    monkeypatch.setattr(time_search, "first_at_or_after", cut_second)
    assert await log.max_timestamp_offset(1) is None
    assert calls == 2


async def test_a_log_that_is_offline_has_no_times() -> None:
    """Its files are closed, and nothing opens them again."""
    log = timed(MANY_SEGMENTS, [5], [6])
    segment = log.segments.all()[0]
    assert await largest_timestamp(log, segment) == 5
    log.go_offline(OSError(errno.EIO, "a test"))
    assert await largest_timestamp(log, segment) == NO_TIMESTAMP


async def test_a_segment_that_is_gone_has_no_times() -> None:
    log = timed(MANY_SEGMENTS, [5], [6])
    segment = log.segments.all()[0]
    log.advance_start_offset(1)
    log.remove_dead_segments()
    assert await largest_timestamp(log, segment) == NO_TIMESTAMP


# ------------------------------------------------------------------------------- the files


def written(*entries: tuple[int, int]) -> MemoryDisk:
    """A time index with these entries, whatever they are."""
    disk = MemoryDisk()
    data = b"".join(
        time.to_bytes(8, signed=True) + at.to_bytes(4, signed=True) for time, at in entries
    )
    disk.replace_file_now(PATH, data)
    return disk


@pytest.mark.parametrize(
    ("entries", "is_believed"),
    [
        ([], True),
        ([(-1, 0)], True),  # of records without a time
        ([(5, 1), (6, 2)], True),
        ([(5, 1), (5, 2)], False),
        ([(5, 1), (6, 1)], False),
        ([(-2, 0)], False),
        ([(5, -1)], False),
        ([(5, 1), (6, -1)], False),
    ],
)
def test_a_file_of_possible_entries_that_rise_is_believed(
    entries: list[tuple[int, int]], is_believed: bool
) -> None:
    assert TimeIndex(PATH, 0).load(written(*entries)) is is_believed


def test_a_truncation_that_removes_nothing_leaves_the_file_alone() -> None:
    index = TimeIndex(PATH, 0)
    index.load(written((5, 1), (6, 2)))
    is_dirty = []
    for offset in (3, 2):
        index.truncate_to_offset(offset)
        is_dirty.append(index.dirty)
    assert is_dirty == [False, True]
    assert index.last == (5, 1)


def last_of(disk: MemoryDisk) -> tuple[int, int] | None:
    """Of a segment from 100 to 110."""
    with FileTimeIndex(disk, PATH, 100, 110) as index:
        return index.last


@pytest.mark.parametrize("offset", [-1, 10, 11])
def test_an_entry_outside_of_its_segment_is_wrong(offset: int) -> None:
    disk = written((5, offset))
    with pytest.raises(WrongIndexError):
        last_of(disk)
    assert last_of(written((5, 9))) == (5, 109)


def test_a_file_without_entries_has_no_last_one() -> None:
    with FileTimeIndex(written(), PATH, 100, 110) as index:
        assert index.last is None
        assert index.offset_before(5) == 100


@pytest.mark.parametrize("got", [0, 11])
def test_an_entry_of_which_a_part_is_in_memory_is_warmed_first(
    got: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = written((5, 1), (6, 2))
    monkeypatch.setattr(MemoryFile, "read", lambda file, at, size: file.read_now(at, got))
    with pytest.raises(ColdIndexError) as caught:
        last_of(disk)
    assert caught.value.size == 24


def test_entries_whose_offsets_fall_prove_nothing() -> None:
    """An entry that is older than the time asked for, and behind a newer one."""
    with FileTimeIndex(written((1, 7), (9, 6)), PATH, 0, 10) as index:
        assert index.offset_before(4) == 0
