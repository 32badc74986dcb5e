"""Rounds of compaction of a log in use."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import itertools
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.wire.batch import Record, batches, read_header
from stele.wire.compression import Compression
from storage.compaction.request import Finished
from storage.compaction.round import AbandonedError
from storage.compaction.slots import SLOT_BYTES
from storage.compaction.survey import survey
from storage.compaction.work import UncleanableError
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.segment_names import DELETED_SUFFIX
from storage.swaps import SWAP_FILE
from tests.support.batches import make_batch
from tests.support.compaction import (
    CONFIG,
    DIRECTORY,
    LIMITS,
    compact,
    compacting,
    filled,
    last_values,
    opened,
    records,
    roll,
    write,
)
from tests.support.storage import MemoryDisk, append


def assert_adjacent(log: PartitionLog) -> None:
    """Each segment ends where the next one begins, and holds nothing of the others."""
    every = log.segments.all()
    for segment, following in itertools.pairwise(every):
        headers = [header for _, header in segment.headers(0)]
        assert headers[-1].next_offset == segment.end_offset == following.base_offset
        assert headers[0].base_offset >= segment.base_offset


def test_the_last_value_of_every_key_stays() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before = records(log)
    finished = compact(log, disk)
    after = records(log)
    assert [record.offset for record in after] == [36, 37, 38, 39, 40]
    assert all(record in before for record in after)
    assert finished is not None
    assert finished.clean_end == 40
    assert finished.bytes_written < finished.bytes_read
    assert_adjacent(log)
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert not [name for name in disk.list(DIRECTORY) if "." not in name or "clean" in name]
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(DELETED_SUFFIX)]


def test_readers_get_the_next_batch_at_an_offset_that_is_gone() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    compact(log, disk)
    for offset in range(log.end_offset):
        result = log.read(offset, 1 << 20, limit_offset=log.end_offset)
        first = next(batches(result.data))[1]
        assert first.last_offset >= offset
        assert result.next_offset > offset


def test_a_follower_copies_a_compacted_log() -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    log, copy = filled(disk), opened(other)
    compact(log, disk)
    while copy.end_offset < log.end_offset:
        copy.append_as_follower(log.read(copy.end_offset, 500).data)
    assert records(copy) == records(log)
    copy.sync_now()
    other.power_loss()
    again = opened(other, recovery_point=copy.end_offset)
    assert records(again) == records(log)
    # The first batches are gone on both, and yet the copy begins where the log does.
    assert (again.start_offset, again.epochs.entries) == (0, [(0, 0)])
    assert next(iter(log.batches_now(0)))[0].base_offset > 0


def test_searches_by_time_find_what_is_left() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    for number in range(30):
        write(log, [(b"k%d" % (number % 3), b"v")], timestamp_ms=1000 + number)
    roll(log)
    compact(log, disk)
    found = asyncio.run(log.offset_for_timestamp(1005))
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (27, 1027)


def test_small_segments_become_one() -> None:
    disk = MemoryDisk()
    log = filled(disk, 200)
    many = len(log.segments.all())
    compact(log, disk)
    # The headers that mark the ends of segments are merged in the next round.
    write(log, [(b"k0", b"new")])
    roll(log)
    compact(log, disk, clean_end=200)
    assert len(log.segments.all()) < many / 3
    assert_adjacent(log)


def test_a_round_changes_nothing_where_nothing_is_redundant() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    for number in range(30):
        write(log, [(b"%d" % number, b"v" * 300)])
    roll(log)
    files = {path: bytes(inode.data) for path, inode in disk.inodes.items()}
    compact(log, disk)
    assert {path: bytes(inode.data) for path, inode in disk.inodes.items()} == files


def test_the_active_segment_and_what_is_not_committed_are_not_touched() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before = records(log)
    base = log.segment_bases[3]
    compact(log, disk, limit=base + 1)
    after = records(log)
    assert [record for record in after if record.offset >= base] == before[base:]
    assert len(after) < len(before)


def test_a_small_map_takes_several_rounds() -> None:
    disk = MemoryDisk()
    log = filled(disk, 60, keys=20)
    expected = last_values(records(log))
    limits = LIMITS._replace(map_bytes=11 * SLOT_BYTES)
    clean_end, rounds = 0, 0
    while (finished := compact(log, disk, clean_end=clean_end, limits=limits)) is not None:
        assert finished.clean_end > clean_end
        clean_end, rounds = finished.clean_end, rounds + 1
        assert last_values(records(log)) == expected
    assert rounds > 2
    assert len(records(log)) == 21


def test_a_map_that_is_too_small_for_a_batch_is_reported() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, [(b"%d" % number, b"v") for number in range(50)])
    roll(log)
    with pytest.raises(UncleanableError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        compact(log, disk, limits=LIMITS._replace(map_bytes=5 * SLOT_BYTES))


def test_repetitions_are_recognized_after_a_round_and_a_restart() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    batches_ = [make_batch(2, producer=(9, 0, 2 * number)) for number in range(20)]
    for batch in batches_:
        append(log, bytearray(batch))
    roll(log)
    log.sync_now()
    compact(log, disk)
    for path in [path for path in disk.inodes if path.endswith(".snapshot")]:
        del disk.inodes[path]
    again = opened(disk)
    for number in range(15, 20):
        batch = bytearray(batches_[number])
        result = again.append_as_leader(batch, read_header(batch), leader_epoch=0, now_ms=1)
        assert (result.duplicate, result.base_offset) == (True, 2 * number)


def test_a_damaged_segment_is_reported_and_left_alone() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    disk.flip(log.segments.all()[2].path, 70)
    before = {path: bytes(inode.data) for path, inode in disk.inodes.items()}
    with pytest.raises(UncleanableError, match="CRC"):
        compact(log, disk)
    assert {path: bytes(inode.data) for path, inode in disk.inodes.items()} == before


def test_an_unreadable_segment_is_reported() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    disk.unreadable.add(log.segments.all()[2].path)
    with pytest.raises(UncleanableError, match="cannot be read"):
        compact(log, disk)
    assert log.offline is None


def test_a_full_disk_ends_the_round_and_nothing_else() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before = records(log)
    disk.capacity = disk.used() + 10
    with pytest.raises(StorageError):
        compact(log, disk)
    assert log.offline is None
    assert records(log) == before
    assert not [path for path in disk.inodes if "cleaned" in path]
    disk.capacity = None
    compact(log, disk)
    assert len(records(log)) == 5


def test_a_disk_without_room_for_the_note_of_a_swap_ends_the_round_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before = records(log)

    def replace(path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(disk, "replace_file_now", replace)
    with pytest.raises(StorageError, match="no room to compact"):
        compact(log, disk)
    assert log.offline is None
    assert records(log) == before


def test_a_failed_sync_takes_the_log_offline() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    disk.sync_error = errno.EIO
    with pytest.raises(StorageError):
        compact(log, disk)
    assert log.offline is not None


@pytest.mark.parametrize("turns", range(1, 60, 7))
@pytest.mark.parametrize("what", ["truncate", "reset", "close", "retire"])
async def test_a_round_is_abandoned_when_the_log_changes(turns: int, what: str) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    expected = records(log)
    task = asyncio.create_task(compacting(log, disk))
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.done():
        return
    match what:
        case "truncate":
            log.truncate_to(17)
        case "reset":
            log.reset_to(500)
        case "close":
            log.close()
        case _:
            log.advance_start_offset(20)
            await log.retire_dead_segments(in_order=True)
    try:
        await task
    except AbandonedError:
        pass
    else:
        assert what == "retire"
    if what == "truncate":
        assert log.end_offset <= 17  # lower where the batches before it are gone
        assert set(records(log)) <= set(expected[:17])
    elif what == "reset":
        assert (log.start_offset, log.end_offset) == (500, 500)
    elif what == "retire":
        assert last_values(records(log)) == last_values(expected)


async def begun(turns: int) -> tuple[MemoryDisk, PartitionLog, asyncio.Task[Finished | None]]:
    """A round that has had some turns, and writes several segments."""
    disk = MemoryDisk()
    log = filled(disk, 60, keys=20)
    task = asyncio.create_task(compacting(log, disk))
    for _ in range(turns):
        await asyncio.sleep(0)
    return disk, log, task


async def test_nothing_is_swapped_and_nothing_fails_once_the_log_is_closed() -> None:
    """The next opening settles what was begun."""

    for turns in itertools.count(1, 3):
        disk, log, task = await begun(turns)
        if task.done():
            break
        log.close()
        disk.unreadable.update(disk.inodes)
        has_note = SWAP_FILE in disk.list(DIRECTORY)
        with pytest.raises(AbandonedError):
            await task
        assert (SWAP_FILE in disk.list(DIRECTORY)) is has_note
    assert turns > 20


async def test_a_round_of_a_log_that_was_cut_during_a_swap_reads_no_more() -> None:
    disk, log, task = await begun(0)
    for _ in range(1_000):
        if SWAP_FILE in disk.list(DIRECTORY):
            break
        await asyncio.sleep(0)
    log.truncate_to(log.end_offset - 1)  # the compacted segments stay
    disk.unreadable.update(disk.inodes)
    with pytest.raises(AbandonedError):
        await task


def test_a_young_record_keeps_its_segment_and_all_after_it() -> None:
    disk = MemoryDisk()
    config = CONFIG
    log = opened(disk, config)
    for number in range(40):
        write(log, [(b"k", b"v")], timestamp_ms=1000 + number)
    roll(log)
    log.configure(dataclasses.replace(config, min_compaction_lag_ms=100))
    found = asyncio.run(survey(log, 0, log.end_offset, 1120))
    assert found.segments
    assert 15 < found.segments[-1][1] <= 21  # records up to 1020 are old enough


def test_a_survey_of_a_log_tells_clean_from_dirty() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    bases = log.segment_bases
    found = asyncio.run(survey(log, bases[2], log.end_offset, 10**9))
    sizes = [segment.size for segment in log.segments]
    assert (found.clean_bytes, found.dirty_bytes) == (sum(sizes[:2]), sum(sizes[2:-1]))
    assert found.first_dirty == bases[2]
    assert not found.is_overdue
    # A clean end that cannot be is not believed.
    assert asyncio.run(survey(log, 10**6, log.end_offset, 10**9)).first_dirty == 0


Writes = st.lists(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([b"x", b"yy", None])), min_size=1, max_size=4
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            Writes,
            st.sampled_from(list(Compression)),
            st.sampled_from([4, 7, 1000]),
            st.sampled_from([0, 400, 1200]),
            st.sampled_from(["", "reopen", "lose power"]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_reader_has_the_same_dictionary_as_without_compaction(
    rounds: list[tuple[list[list[tuple[int, bytes | None]]], Compression, int, int, str]],
) -> None:
    """The twin keeps everything that was written."""
    disk = MemoryDisk()
    log = opened(disk)
    written: list[Record] = []
    now_ms, clean_end = 10_000, 0
    first_cleaned: dict[int, int] = {}  # of tombstones, by offset
    for writes, compression, slots, passed_ms, end in rounds:
        for pairs in writes:
            write(
                log,
                [(b"k%d" % key, value) for key, value in pairs],
                timestamp_ms=now_ms,
                compression=compression,
            )
        written = sorted({*written, *records(log)})
        now_ms += passed_ms
        limits = LIMITS._replace(map_bytes=slots * SLOT_BYTES * 2)
        finished = compact(log, disk, clean_end=clean_end, now_ms=now_ms, limits=limits)
        if finished is not None:
            clean_end = finished.clean_end
        left = records(log)
        assert set(left) <= set(written)
        assert [record.offset for record in left] == sorted({record.offset for record in left})
        assert last_values(left) == last_values(written)
        assert_adjacent(log)
        clean = [record for record in left if record.offset < clean_end]
        assert len({record.key for record in clean}) == len(clean)
        latest = {record.key: record for record in written if record.offset < clean_end}
        for record in latest.values():
            if record.value is None:
                horizon_ms = first_cleaned.setdefault(record.offset, now_ms) + 1000
                assert record in left or now_ms >= horizon_ms or finished is None
        if end:
            log.sync_now()
            if end == "lose power":
                disk.power_loss()
            log = opened(disk, recovery_point=log.end_offset if end == "reopen" else 0)
            assert records(log) == left


def test_a_compacted_log_begins_segments_in_time_for_its_greatest_lag() -> None:
    config = dataclasses.replace(CONFIG, segment_ms=10_000, max_compaction_lag_ms=3000)
    assert config.segment_time_ms("t-0", 0) == 3000
    assert dataclasses.replace(config, compact=False).segment_time_ms("t-0", 0) == 10_000
    disk = MemoryDisk()
    log = opened(disk, dataclasses.replace(config, segment_bytes=1 << 20))
    for number in range(10):
        write(log, [(b"k", b"v")], timestamp_ms=1000 * number)
    assert log.segment_bases == [0, 4, 8]
