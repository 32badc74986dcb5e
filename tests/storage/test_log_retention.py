"""What a log keeps: retention, durability and the counts of its bytes."""

import asyncio
import errno
from dataclasses import replace

import pytest

from stele.errors import ApiError
from storage import opening
from storage.config import NO_LIMIT, LogConfig
from storage.retention import retained_from
from storage.snapshots import snapshot_offsets
from tests.support.batches import make_batch
from tests.support.partition_log import KEY, SMALL, offsets_in, open_log, read_all
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock

LIMITS = ("retention_ms", "retention_bytes")


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


# ------------------------------------------------------------------------------- retention


async def test_retention_by_time_reaches_the_active_segment(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, retention_ms=100))
    for number in range(40):
        append(log, make_batch(timestamp_ms=number * 10))
    second = log.segment_bases[1]
    last_of_first_ms = (second - 1) * 10
    assert await retained_from(log, 40, last_of_first_ms + 100) == 0
    assert await retained_from(log, 40, last_of_first_ms + 101) == second
    assert await retained_from(log, 40, 390 + 100) == log.segment_bases[-1]
    assert await retained_from(log, 39, 10**9) == log.segment_bases[-1]
    assert await retained_from(log, 40, 390 + 101) == 40
    log.advance_start_offset(40)
    log.leave_dead_segment()
    assert log.segment_bases[-1] == 40
    log.leave_dead_segment()  # it is empty
    await log.retire_dead_segments()
    assert (log.segment_bases, log.start_offset, log.size_bytes) == ([40], 40, 0)
    append(log, make_batch())
    log.leave_dead_segment()  # it has a record that is not dead
    assert (log.segment_bases, read_all(log)) == ([40], [40])
    assert read_all(open_log(disk, start_offset=40)) == [40]


@pytest.mark.parametrize("unlimited", LIMITS)
async def test_without_a_limit_everything_is_kept(disk: MemoryDisk, unlimited: str) -> None:
    time_ms, size = (NO_LIMIT if unlimited == each else 10**9 for each in LIMITS)
    log = open_log(disk, replace(SMALL, retention_ms=time_ms, retention_bytes=size))
    for number in range(40):
        append(log, make_batch(timestamp_ms=number))
    assert await retained_from(log, 40, 10**6) == 0
    log.configure(replace(log.config, retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT))
    assert await retained_from(log, 40, 10**15) == 0


async def test_retention_leaves_a_log_alone_whose_segment_is_gone_meanwhile(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk, replace(SMALL, retention_ms=100))
    while len(log.segment_bases) < 3:
        append(log, make_batch(timestamp_ms=0))
    log.prepare_clean_shutdown()
    log.close()
    log = open_log(disk, replace(SMALL, retention_ms=100), clean_shutdown=True)
    disk.cold = True
    applying = asyncio.ensure_future(retained_from(log, log.end_offset, 10**9))
    await asyncio.sleep(0)
    start_offset = log.segment_bases[1]
    log.advance_start_offset(start_offset)
    log.remove_dead_segments()
    assert await applying == start_offset


async def test_retention_spares_a_segment_that_is_written_to_meanwhile(disk: MemoryDisk) -> None:
    """Only whole segments go. Its records have no time, so its index is looked at for one."""
    log = open_log(disk, replace(SMALL, segment_bytes=1 << 20, retention_ms=100))
    for _ in range(300):
        append(log, make_batch(timestamp_ms=-1))
    log.segments.active.lose_indexes()  # they are rebuilt first, in two turns
    applying = asyncio.ensure_future(retained_from(log, log.end_offset, 10**9))
    await asyncio.sleep(0)
    assert not applying.done()
    append(log, make_batch(timestamp_ms=-1))
    assert await applying == 0
    assert await retained_from(log, log.end_offset, 10**9) == 301


async def test_retention_of_records_without_a_time_survives_restarts(disk: MemoryDisk) -> None:
    """Their segment's file tells when it was last written."""
    config = replace(SMALL, retention_ms=100)
    disk.time_ms = 1_000
    log = open_log(disk, config)
    append(log, make_batch(timestamp_ms=-1))
    disk.time_ms = 1_050
    append(log, make_batch(timestamp_ms=-1))
    log.sync_now()
    disk.time_ms = 1_130
    log = opening.open_log(disk, "/d/t-0", config, HandClock(1_130), key=KEY)
    assert await retained_from(log, 2, 1_150) == 0
    assert await retained_from(log, 2, 1_151) == 2


def test_restarts_do_not_put_off_the_end_of_a_segment(disk: MemoryDisk) -> None:
    config = replace(SMALL, segment_ms=100)
    disk.time_ms = 1_000
    append(open_log(disk, config), make_batch(timestamp_ms=-1), now_ms=1_000)
    log = opening.open_log(disk, "/d/t-0", config, HandClock(1_090), key=KEY)
    append(log, make_batch(timestamp_ms=-1), now_ms=1_100)
    assert log.segment_bases == [0]
    append(log, make_batch(timestamp_ms=-1), now_ms=1_101)
    assert log.segment_bases == [0, 2]


async def test_producers_outlive_the_segment_that_the_log_leaves(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(3, producer=(7, 0, 0)))
    log.sync_now()
    log.advance_start_offset(3)
    log.leave_dead_segment()
    log.sync_now()
    await log.retire_dead_segments()
    disk.power_loss()
    log = open_log(disk, start_offset=3)
    assert (log.segment_bases, log.end_offset) == ([3], 3)
    assert append(log, make_batch(3, producer=(7, 0, 0))) == 0  # a duplicate
    assert log.end_offset == 3


@pytest.mark.parametrize("in_slices", [True, False])
async def test_producers_of_deleted_segments_outlive_a_kill_and_a_power_loss(
    disk: MemoryDisk, in_slices: bool
) -> None:
    """The killed process has written a snapshot that it did not sync."""
    log = open_log(disk, SMALL)
    append(log, make_batch(3, producer=(7, 0, 0)))
    while len(log.segment_bases) == 1:
        append(log, make_batch())
    log.close()
    log = open_log(disk, SMALL)
    log.sync_now()
    (_, base) = log.segment_bases
    log.advance_start_offset(base)
    assert (await log.retire_dead_segments() if in_slices else log.remove_dead_segments()) == 1
    disk.power_loss()
    log = open_log(disk, SMALL, start_offset=base)
    assert append(log, make_batch(3, producer=(7, 0, 0))) == 0  # a duplicate


async def test_snapshots_of_producers_go_with_their_segments(disk: MemoryDisk) -> None:
    log = open_log(disk)
    while len(log.segment_bases) < 4:
        append(log, make_batch(producer=(7, 0, log.end_offset)))
    log.sync_now()
    bases = log.segment_bases
    log.advance_start_offset(bases[2])
    await log.retire_dead_segments()
    assert log.segment_bases == bases[2:]
    assert snapshot_offsets(disk, log.directory) == bases[2:]


def test_an_active_segment_gets_no_index_files_before_it_is_sealed(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch())
    segment = log.segments.active
    assert segment.flush_index_files() == []
    assert not any(map(disk.exists, segment.index_paths()))


async def test_retention_by_size(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, retention_bytes=2000, retention_ms=-1))
    for _ in range(60):
        append(log, make_batch())
    start = await retained_from(log, 60, 0)
    log.advance_start_offset(start)
    assert log.remove_dead_segments() > 0
    assert 2000 <= log.size_bytes < 3000
    assert log.start_offset == log.segment_bases[0] == start
    assert read_all(log) == list(range(start, 60))


async def test_retention_stays_below_the_high_watermark(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, retention_ms=1))
    for _ in range(40):
        append(log, make_batch())
    second, third = log.segment_bases[1:3]
    assert await retained_from(log, third - 1, 10**12) == second


def test_deleted_records_are_out_of_range(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(10), epoch=2)
    log.advance_start_offset(4)
    assert offsets_in(log, 4) == [0]  # the whole batch that holds it
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        log.read(3, 100)
    assert log.epochs.entries == [(2, 4)]
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        log.advance_start_offset(11)


# ------------------------------------------------------------------------------- durability


def test_a_sync_covers_what_was_there_when_it_began(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(5))
    ticket = log.begin_sync()
    append(log, make_batch(5))
    told: list[int] = []
    log.on_durable = lambda changed: told.append(changed.durable_offset)
    log.finish_sync(ticket)
    assert told == [5]
    assert (log.durable_offset, log.end_offset) == (5, 10)


def test_a_sync_of_what_is_on_disk_already_raises_nothing(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(5))
    told: list[int] = []
    log.on_durable = lambda changed: told.append(changed.durable_offset)
    for _ in range(2):
        log.finish_sync(log.begin_sync())
    assert told == [5]


def test_a_sync_from_before_a_truncation_says_nothing(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(5))
    append(log, make_batch(5))
    ticket = log.begin_sync()
    log.truncate_to(5)
    append(log, make_batch(20))
    log.finish_sync(ticket)
    assert (log.durable_offset, log.end_offset) == (5, 25)


def test_a_relaxed_flush_trusts_the_page_cache(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, flush_messages=100))
    log.sync_now()  # its first sync, for which every log waits
    append(log, make_batch(5))
    assert (log.durable_offset, log.synced_offset) == (5, 0)
    log.sync_now()
    assert log.synced_offset == 5
    append(log, make_batch(5))
    log.configure(SMALL)
    assert (log.durable_offset, log.synced_offset) == (10, 5)  # what counted goes on counting
    append(log, make_batch(5))
    assert log.durable_offset == 10
    log.sync_now()
    assert log.durable_offset == 15


def test_a_relaxed_log_begins_a_segment_without_a_sync(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, flush_messages=100))
    log.sync_now()
    disk.sync_error = errno.EIO
    while len(log.segment_bases) == 1:
        append(log, make_batch())
    assert log.offline is None


def test_a_new_log_and_a_new_segment_put_their_entries_into_the_group(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert {"/d", "/d/t-0"} <= set(log.begin_sync().paths)
    log = open_log(disk)
    log.sync_now()
    assert log.begin_sync().paths == (f"/d/t-0/{0:020d}.log",)
    while len(log.segment_bases) == 1:
        append(log, make_batch(producer=(7, 0, log.end_offset)))
    paths = log.begin_sync().paths
    assert {"/d/t-0", f"/d/t-0/{log.segment_bases[1]:020d}.snapshot"} <= set(paths)
    log.sync_now()
    disk.power_loss()
    assert open_log(disk).end_offset == log.end_offset


# ----------------------------------------------------------------------------- counting


def test_bytes_are_counted_as_a_read_would_give_them(disk: MemoryDisk) -> None:
    """From every offset to every limit, wherever there are index entries."""
    log = open_log(disk, LogConfig(index_interval_bytes=200))
    for count in (1, 3, 2, 5, 1, 1, 4, 2):
        append(log, make_batch(count))
    for offset in range(log.end_offset + 1):
        for limit in range(log.end_offset + 1):
            found = log.read(offset, 1 << 20, limit_offset=limit)
            assert log.readable_bytes(offset, limit) == len(found.data), (offset, limit)


def test_what_only_the_device_could_count_is_not_counted(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for _ in range(3):
        append(log, make_batch())
    disk.cold = True
    assert log.readable_bytes(1, 3) is None
    assert log.readable_bytes(1, 2) is None


def test_the_greatest_time_of_a_segment_belongs_to_the_first_batch_that_has_it(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    for timestamp_ms in (3, 5, 5):
        append(log, make_batch(timestamp_ms=timestamp_ms))
    segment = log.segments.active
    assert (segment.max_timestamp_ms, segment.max_timestamp_offset) == (5, 1)
    segment.close()
    assert not segment.intact


def test_what_ends_with_a_segment_is_not_counted_but_read(disk: MemoryDisk) -> None:
    log = open_log(disk)
    while len(log.segments.all()) < 3:
        append(log, make_batch(2))
    active = log.segments.active.base_offset
    assert log.readable_bytes(0, log.end_offset) is None
    assert log.readable_bytes(active, log.end_offset) == log.segments.active.size
