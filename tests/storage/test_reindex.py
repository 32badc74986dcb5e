"""Indexes that are rebuilt while their log is in use, and what a segment knows of its batches."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.segment import Segment
from tests.support.batches import make_batch
from tests.support.partition_log import offsets_in, open_log, read_all
from tests.support.storage import MemoryDisk, append
from tests.support.worlds import virtual

LARGE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=200)
BATCHES = 600
"""More than a turn of the event loop reads twice."""


def roll(log: PartitionLog) -> None:
    """Append a batch, to a segment of its own."""
    log.configure(replace(LARGE, segment_bytes=1))
    append(log, make_batch(timestamp_ms=log.end_offset))
    log.configure(LARGE)


def filled(disk: MemoryDisk, segments: int = 1) -> PartitionLog:
    log = open_log(disk, LARGE)
    for number in range(segments):
        if number:
            roll(log)
        while log.end_offset < (number + 1) * BATCHES:
            append(log, make_batch(timestamp_ms=log.end_offset))
    return log


def index_files(disk: MemoryDisk, segment: Segment) -> list[bytes | None]:
    paths = segment.index_paths()
    return [bytes(disk.inodes[path].data) if disk.exists(path) else None for path in paths]


def lose(disk: MemoryDisk, segment: Segment) -> ColdRange:
    """What a read says of a segment whose indexes are wrong."""
    for path in segment.index_paths():
        if disk.exists(path):
            disk.remove(path)
    segment.lose_indexes()
    return ColdRange(segment.path, 0, 0)


@virtual
async def test_indexes_of_a_sealed_segment_are_rebuilt_on_disk_as_they_were() -> None:
    disk = MemoryDisk()
    log = filled(disk, segments=2)
    log.prepare_clean_shutdown()
    log.close()
    log = open_log(disk, LARGE, clean_shutdown=True)
    first, active = log.segments
    await log.warm(lose(disk, first))
    assert not first.indexes_lost
    times = [log.segments.active.max_timestamp_ms, first.max_timestamp_ms]
    assert times == [2 * BATCHES - 1, BATCHES - 1]
    rebuilt = index_files(disk, first)
    assert all(rebuilt), "the next start needs not read the segment again"
    log.close()
    log = open_log(disk, LARGE, clean_shutdown=True)
    assert offsets_in(log, 300, 1) == [300]
    assert index_files(disk, active) != rebuilt


@virtual
async def test_indexes_of_the_active_segment_stay_open_for_appends() -> None:
    """It is not sealed: an entry for its last batch would stand in its time index too early."""
    disk = MemoryDisk()
    log = filled(disk)
    active = log.segments.active
    await log.warm(lose(disk, active))
    assert not active.indexes_lost
    assert index_files(disk, active) == [None, None]
    for _ in range(100):
        append(log, make_batch(timestamp_ms=log.end_offset))
    assert read_all(log) == list(range(BATCHES + 100))
    assert offsets_in(log, BATCHES + 50, 1) == [BATCHES + 50]


@virtual
async def test_a_segment_is_read_in_slices_while_it_grows() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    warming = asyncio.ensure_future(log.warm(lose(disk, log.segments.active)))
    turns = 0
    while not warming.done():
        await asyncio.sleep(0)
        turns += 1
        if turns < 5:
            append(log, make_batch(timestamp_ms=log.end_offset))
    await warming
    assert turns > BATCHES // 256
    end = log.end_offset
    assert end > BATCHES
    assert log.segments.active.max_timestamp_offset == end - 1
    assert offsets_in(log, end - 1, 1) == [end - 1]


@pytest.mark.parametrize("turns", [1, 2])
@virtual
async def test_a_scan_ends_when_its_segment_is_truncated(turns: int) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    active = log.segments.active
    warming = asyncio.ensure_future(log.warm(lose(disk, active)))
    for _ in range(turns):
        await asyncio.sleep(0)
    log.truncate_to(10)
    for number in range(5):
        append(log, make_batch(timestamp_ms=10_000 + number, value=b"longer" * 50))
    await warming
    assert active.damage is None
    assert read_all(log) == list(range(15))
    for offset in range(15):
        assert offsets_in(log, offset, 1) == [offset]
    assert active.max_timestamp_ms == 10_004


@virtual
async def test_a_scan_leaves_nothing_of_a_segment_that_is_deleted_meanwhile() -> None:
    disk = MemoryDisk()
    log = filled(disk, segments=2)
    first = log.segments.bases[0]
    segment = next(iter(log.segments))
    warming = asyncio.ensure_future(log.warm(lose(disk, segment)))
    await asyncio.sleep(0)
    log.advance_start_offset(log.segments.bases[1])
    log.remove_dead_segments()
    await warming
    assert log.segments.bases[0] > first
    assert not [path for path in disk.inodes if f"{first:020}" in path]


# ------------------------------------------------------------------ what a segment knows


def summary(log: PartitionLog) -> list[tuple[int, ...]]:
    return [
        (
            each.base_offset,
            each.end_offset,
            each.size,
            each.first_timestamp_ms,
            each.max_timestamp_ms,
            each.max_timestamp_offset,
        )
        for each in log.segments
    ]


def test_a_truncated_segment_keeps_its_newest_record() -> None:
    """Else retention would delete the record too early, and no search by time would find it."""
    log = open_log(MemoryDisk(), LARGE)
    for time_ms in (100, 1, 2, 3, 4, 5, 6, 7, 200, 8, 9, 10, 11, 12):
        append(log, make_batch(timestamp_ms=time_ms))
    log.truncate_to(8)
    active = log.segments.active
    assert (active.max_timestamp_ms, active.max_timestamp_offset) == (100, 0)


@pytest.mark.parametrize("seed", range(30))
def test_a_log_that_is_opened_or_cut_knows_what_it_would_have_noted(seed: int) -> None:
    """Of equal timestamps the first one counts, whether it stands in an index or not."""
    rng = random.Random(seed)
    times = [rng.choice((5, 6, 7, rng.randrange(100))) for _ in range(30)]

    def written(count: int, disk: MemoryDisk) -> PartitionLog:
        log = open_log(disk, LARGE)
        for time_ms in times[:count]:
            append(log, make_batch(timestamp_ms=time_ms))
        return log

    disk = MemoryDisk()
    log = written(30, disk)
    for count in sorted(rng.sample(range(1, 31), 4), reverse=True):
        log.truncate_to(count)
        assert summary(log) == summary(written(count, MemoryDisk()))
        log.prepare_clean_shutdown()
        log.close()
        log = open_log(disk, LARGE, clean_shutdown=True)
        assert summary(log) == summary(written(count, MemoryDisk()))
