"""How much work an operation does in all, and in one turn of the event loop.

The work is counted on a disk and not timed. The tests fail if work grows with a log's size where it
need not.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

import pytest

from stele.ids import TopicPartition
from stele.wire.batch import BatchBuilder, read_header
from stele.wire.compression import Compression
from storage import opening, producer_files
from storage.checkpoints import MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import CorruptLogError
from storage.formatted import format_directory
from storage.log import PartitionLog
from storage.log_types import TimestampOffset
from storage.retention import retained_from
from tests.support.batches import make_batch
from tests.support.counting import CountingDisk, Work
from tests.support.storage import append, commit
from tests.support.timing import HandClock

T = TypeVar("T")

KEY = TopicPartition("t", 0)
BIG = LogConfig(segment_bytes=1 << 30, index_interval_bytes=512)
BATCH_BYTES = len(make_batch())


def open_log(disk: CountingDisk, config: LogConfig = BIG, **checkpoints: Any) -> PartitionLog:
    return opening.open_log(disk, "/d/t-0", config, HandClock(), key=KEY, **checkpoints)


def fill(log: PartitionLog, count: int, *, producer: bool = False) -> None:
    for number in range(count):
        identity = (5, 0, number) if producer else None
        batch = make_batch(producer=identity, timestamp_ms=number)
        log.append_as_leader(batch, read_header(batch), leader_epoch=0, now_ms=number)


def close_cleanly(log: PartitionLog, disk: CountingDisk) -> None:
    epochs = log.checkpoint_epochs()
    assert epochs is not None
    disk.replace_file_now(*epochs)
    log.prepare_clean_shutdown()
    log.sync_now()
    log.close()


def reopened(disk: CountingDisk, end: int, config: LogConfig = BIG) -> PartitionLog:
    """Open a log after a clean shutdown. Nothing is above the high watermark."""
    return opening.open_log(
        disk,
        "/d/t-0",
        config,
        HandClock(),
        key=KEY,
        recovery_point=end,
        high_watermark_checkpoint=end,
        clean_shutdown=True,
    )


async def longest_turn(disk: CountingDisk, work: Awaitable[T]) -> tuple[T, Work]:
    """The result, and the most bytes that were read in one turn of the event loop."""
    longest = disk.fresh()
    task = asyncio.ensure_future(work)
    while not task.done():
        turn = disk.fresh()
        await asyncio.sleep(0)
        if (turn.bytes_read, turn.total_calls) > (longest.bytes_read, longest.total_calls):
            longest = turn
    return task.result(), longest


# ------------------------------------------------------------------------------- truncation


@pytest.mark.parametrize("producer", [False, True])
def test_a_truncation_reads_the_tail_only(monkeypatch: pytest.MonkeyPatch, producer: bool) -> None:
    monkeypatch.setattr(producer_files, "REPLAY_BATCHES", 64)
    read = []
    for count in (400, 3200):
        disk = CountingDisk()
        log = open_log(disk)
        fill(log, count, producer=producer)
        work = disk.fresh()
        assert log.truncate_to(count - 1) == count - 1
        state = log.producers.get(5)
        assert (state.last_sequence if state else None) == (count - 2 if producer else None)
        read.append(work.bytes_read)
    for bytes_read in read:
        assert bytes_read < 200 * BATCH_BYTES


def test_a_truncation_after_a_restart_reads_the_tail_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_files, "REPLAY_BATCHES", 64)
    disk = CountingDisk()
    log = open_log(disk)
    fill(log, 2000, producer=True)
    log.sync_now()
    log.close()
    log = open_log(disk)
    work = disk.fresh()
    log.truncate_to(1990)
    assert work.bytes_read < 200 * BATCH_BYTES


def test_snapshots_within_a_segment_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_files, "REPLAY_BATCHES", 16)
    disk = CountingDisk()
    log = open_log(disk)
    fill(log, 1000, producer=True)
    assert len([path for path in disk.inodes if path.endswith(".snapshot")]) <= 3
    # Each truncation begins with the newest snapshot below it and replays from there.
    for end in (999, 970, 500, 3):
        log.truncate_to(end)
        state = log.producers.get(5)
        assert state is not None
        assert state.last_sequence == end - 1


# ------------------------------------------------------------------------------- recovery


@pytest.mark.parametrize("producer", [False, True])
def test_recovery_reads_what_came_since_the_recovery_point(
    monkeypatch: pytest.MonkeyPatch, producer: bool
) -> None:
    monkeypatch.setattr(producer_files, "REPLAY_BATCHES", 64)
    for count in (400, 3200):
        disk = CountingDisk()
        log = open_log(disk)
        fill(log, count, producer=producer)
        log.sync_now()
        epochs = log.checkpoint_epochs()
        assert epochs is not None
        disk.replace_file_now(*epochs)
        log.close()
        work = disk.fresh()
        log = open_log(disk, recovery_point=count, high_watermark_checkpoint=count)
        assert log.end_offset == count
        state = log.producers.get(5)
        assert (state.last_sequence if state else None) == (count - 1 if producer else None)
        index_bytes = sum(
            len(disk.inodes[f"/d/t-0/{0:020d}.{suffix}"].data) for suffix in ("index", "timeindex")
        )
        assert work.bytes_read - index_bytes < 200 * BATCH_BYTES
        assert work.total_calls < 50


# ------------------------------------------------------------------------------- times


async def test_the_first_retention_check_reads_an_entry_for_each_segment() -> None:
    config = LogConfig(segment_bytes=40_000, index_interval_bytes=100, retention_ms=600)
    disk = CountingDisk()
    log = open_log(disk, config)
    fill(log, 2000)
    segments = len(log.segment_bases)
    close_cleanly(log, disk)
    log = reopened(disk, 2000, config)
    work = disk.fresh()
    assert await retained_from(log, 2000, 2000) > 0
    assert work.bytes_read <= 12 * segments
    assert work.calls["open"] <= segments


async def test_a_look_up_by_time_searches_in_the_file() -> None:
    config = LogConfig(segment_bytes=200_000, index_interval_bytes=100)
    disk = CountingDisk()
    log = open_log(disk, config)
    fill(log, 8000)
    close_cleanly(log, disk)
    log = reopened(disk, 8000, config)
    work = disk.fresh()
    found = await log.offset_for_timestamp(100)
    assert found is not None
    assert found.offset == 100
    index_bytes = len(disk.inodes[f"/d/t-0/{0:020d}.index"].data)
    assert work.bytes_read < index_bytes + 10_000  # the offset index, some entries, some batches


async def test_the_newest_record_is_looked_for_in_no_segment_outside_of_the_range() -> None:
    config = LogConfig(segment_bytes=200, index_interval_bytes=100)
    disk = CountingDisk()
    log = open_log(disk, config)
    fill(log, 1000)
    bases = log.segments.bases
    close_cleanly(log, disk)
    log = reopened(disk, 1000, config)
    log.advance_start_offset(bases[-4])
    work = disk.fresh()
    found = await log.max_timestamp_offset(bases[-2])
    assert found == TimestampOffset(bases[-2] - 1, bases[-2] - 1, 0)
    assert work.total_calls < 30, "of two segments"


async def test_a_look_up_by_time_of_many_segments_yields() -> None:
    config = LogConfig(segment_bytes=200, index_interval_bytes=100)
    disk = CountingDisk()
    log = open_log(disk, config)
    fill(log, 1000)
    close_cleanly(log, disk)
    log = reopened(disk, 1000, config)
    found, turn = await longest_turn(disk, log.offset_for_timestamp(10**9))
    assert found is None
    assert turn.total_calls < 200


async def test_a_look_up_by_time_in_a_batch_yields() -> None:
    """It holds a part of the decompressed records at a time."""
    builder = BatchBuilder()
    for number in range(20_000):
        builder.append(None, bytes(2000), timestamp_ms=1_000 + number // 19_999)
    log = open_log(CountingDisk())
    append(log, builder.build(Compression.ZSTD))
    for search in (partial(log.offset_for_timestamp, 1_001), log.max_timestamp_offset):
        turns = 0
        tracemalloc.start()
        searching = asyncio.ensure_future(search())
        while not searching.done():
            await asyncio.sleep(0)
            turns += 1
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert searching.result() == TimestampOffset(1_001, 19_999, 0)
        assert turns > 100  # for 40 MB
        assert peak_bytes < 4 << 20


async def test_a_look_up_by_time_over_many_batches_yields() -> None:
    """Not only between segments, and within batches that are decompressed."""
    log = open_log(CountingDisk())
    for number in range(6_000):
        append(log, make_batch(size=1_000, timestamp_ms=1_000 + number))
    turns = 0
    searching = asyncio.ensure_future(log.max_timestamp_offset(5_999))
    while not searching.done():
        await asyncio.sleep(0)
        turns += 1
    assert searching.result() == TimestampOffset(6_998, 5_998, 0)
    assert turns > 5  # for 6 MB


# ------------------------------------------------------------------------------- removals


ONE_EACH = LogConfig(segment_bytes=BATCH_BYTES, index_interval_bytes=1)


async def test_retiring_many_segments_is_cut_into_turns() -> None:
    disk = CountingDisk()
    log = open_log(disk, ONE_EACH)
    fill(log, 300)
    log.advance_start_offset(290)
    retired, turn = await longest_turn(disk, log.retire_dead_segments())
    assert retired == 290
    assert turn.total_calls < 100
    assert log.segment_bases == list(range(290, 300))
    left = [path for path in disk.inodes if path.startswith("/d/t-0/")]
    assert not [path for path in left if path.endswith(".deleted")]
    assert min(path for path in left if path.endswith(".log")) == f"/d/t-0/{290:020d}.log"
    assert read_header(log.read(290, 1).data).base_offset == 290


async def test_segments_that_a_crash_left_under_their_last_names_are_removed() -> None:
    disk = CountingDisk()
    log = open_log(disk, ONE_EACH)
    fill(log, 50)
    log.sync_now()
    log.advance_start_offset(40)
    retiring = asyncio.ensure_future(log.retire_dead_segments())
    await asyncio.sleep(0)  # a part of them
    retiring.cancel()
    assert [path for path in disk.inodes if path.endswith(".deleted")]
    log.close()
    log = open_log(disk, ONE_EACH, start_offset=40)
    assert not [path for path in disk.inodes if path.endswith(".deleted")]
    assert (log.start_offset, log.end_offset) == (40, 50)
    assert log.segment_bases[0] == 40


async def test_a_log_made_anew_under_the_path_meanwhile_keeps_its_files() -> None:
    for turns in range(12):
        disk = CountingDisk()
        log = open_log(disk, ONE_EACH)
        fill(log, 50)
        log.advance_start_offset(40)
        retiring = asyncio.ensure_future(log.retire_dead_segments())
        for _ in range(turns):
            await asyncio.sleep(0)
        log.close()
        disk.rename("/d/t-0", "/d/t-0-delete")
        fresh = open_log(disk, ONE_EACH)
        fill(fresh, 5)
        files = sorted(path for path in disk.inodes if path.startswith("/d/t-0/"))
        await asyncio.gather(retiring, return_exceptions=True)
        assert sorted(path for path in disk.inodes if path.startswith("/d/t-0/")) == files
        assert read_header(fresh.read(3, 1).data).base_offset == 3


async def test_a_checkpoint_of_many_changed_logs_is_cut_into_turns() -> None:
    disk = CountingDisk()
    format_directory(disk, "/d/logs", MetaProperties("c", 1, "d"))
    directory = LogDirectory.open(disk, "/d/logs", HandClock())
    directory.start()
    for number in range(200):
        log = directory.create("t", number, b"t" * 16)
        append(log, make_batch())
        commit(log, 1)
    await directory.flush()
    _, turn = await longest_turn(disk, directory.checkpoint())
    changing = {call: turn.calls[call] for call in ("open", "append", "rename")}
    assert max(changing.values()) <= 40, changing
    directory.delete("t", 7)
    for log in directory.logs.values():
        log.assign_leader_epoch(3)
    checkpointing = asyncio.ensure_future(directory.checkpoint())
    await asyncio.sleep(0)
    directory.delete("t", 8)  # some files are written, none has its name yet
    directory.delete("t", 150)
    await checkpointing
    assert disk.read_file("/d/logs/t-9/leader-epoch-checkpoint").splitlines()[-1] == b"3 1"
    assert TopicPartition("t", 150) not in directory.logs
    await directory.close()


# ------------------------------------------------------------------------------- lost indexes


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
async def test_lost_indexes_are_made_anew_in_slices(suffix: str) -> None:
    disk = CountingDisk()
    config = LogConfig(segment_bytes=4000 * BATCH_BYTES, index_interval_bytes=100)
    log = open_log(disk, config)
    fill(log, 6000)
    close_cleanly(log, disk)
    sound = disk.read_file(f"/d/t-0/{0:020d}.{suffix}")
    disk.remove(f"/d/t-0/{0:020d}.{suffix}")
    log = reopened(disk, 6000, config)
    if suffix == "index":
        cold = log.read(3000, 100).cold
        assert cold is not None
        turns = 0
        warming = asyncio.ensure_future(log.warm(cold))
        while not warming.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 4000 // 256
        assert read_header(log.read(3000, 100).data).base_offset == 3000
    else:
        found = await log.offset_for_timestamp(3000)
        assert found is not None
        assert found.offset == 3000
    if suffix == "timeindex":
        assert disk.read_file(f"/d/t-0/{0:020d}.{suffix}")[-12:] == sound[-12:]


async def test_who_cuts_the_log_meanwhile_is_not_overruled() -> None:
    disk = CountingDisk()
    config = LogConfig(segment_bytes=4000 * BATCH_BYTES, index_interval_bytes=100)
    log = open_log(disk, config)
    fill(log, 6000)
    close_cleanly(log, disk)
    disk.remove(f"/d/t-0/{0:020d}.index")
    log = reopened(disk, 6000, config)
    cold = log.read(3000, 100).cold
    assert cold is not None
    warming = asyncio.ensure_future(log.warm(cold))
    await asyncio.sleep(0)
    log.truncate_to(1000)
    await warming
    assert append(log, make_batch(timestamp_ms=1)) == 1000
    for offset in (0, 500, 999, 1000):
        assert read_header(log.read(offset, 100).data).base_offset == offset


async def test_a_corrupt_segment_without_index_is_reported_as_corrupt() -> None:
    disk = CountingDisk()
    config = LogConfig(segment_bytes=400 * BATCH_BYTES, index_interval_bytes=100)
    log = open_log(disk, config)
    fill(log, 600)
    close_cleanly(log, disk)
    disk.remove(f"/d/t-0/{0:020d}.index")
    disk.inodes[f"/d/t-0/{0:020d}.log"].data[BATCH_BYTES * 50 :] = b""
    log = reopened(disk, 600, config)
    cold = log.read(10, 100).cold
    assert cold is not None
    await log.warm(cold)
    assert read_header(log.read(10, 100).data).base_offset == 10
    disk.inodes[f"/d/t-0/{0:020d}.log"].data[BATCH_BYTES * 20 + 16] ^= 0xFF
    disk.remove(f"/d/t-0/{0:020d}.index")
    log = reopened(disk, 600, config)
    cold = log.read(10, 100).cold
    assert cold is not None
    await log.warm(cold)
    with pytest.raises(CorruptLogError):
        log.read(10, 100)
