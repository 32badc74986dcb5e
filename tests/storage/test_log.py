"""One log on a disk in memory: append, read, roll, truncate, retain, sync."""

import asyncio
import errno
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.batch import (
    BatchBuilder,
    CorruptBatchError,
    batches,
    check_crc,
    decode,
    read_header,
    stamp,
)
from storage import opening
from storage.cold_range import COLD_BYTES, ColdRange
from storage.config import LogConfig
from storage.errors import CorruptLogError, OutOfOrderOffsetsError, StorageError
from storage.leader_epochs import EpochEndOffset
from tests.support.batches import make_batch
from tests.support.partition_log import KEY, SMALL, offsets_in, open_log, read_all
from tests.support.storage import MemoryDisk, MemoryFile, append
from tests.support.timing import HandClock


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


# ------------------------------------------------------------------------------- append


def test_the_leader_stamps_what_it_appends(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(3), epoch=4)
    batch = make_batch(2)
    assert append(log, batch, epoch=5) == 3
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch, log.end_offset) == (3, 5, 5)
    assert check_crc(batch, 0, header)
    assert log.epochs.entries == [(4, 0), (5, 3)]
    assert bytes(log.read(3, 1000).data) == bytes(batch)


def test_an_epoch_led_without_a_record_does_not_keep_earlier_ones_out(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(2), epoch=7)
    batch = make_batch(3)
    log.assign_leader_epoch(8)
    stamp(batch, 0, base_offset=2, leader_epoch=7)
    log.append_as_follower(batch)
    assert (log.epochs.entries, log.end_offset) == ([(7, 0)], 5)


def test_log_append_time_is_the_leaders(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, log_append_time=True))
    batch = make_batch(2, timestamp_ms=5)
    result = log.append_as_leader(batch, read_header(batch), leader_epoch=0, now_ms=77)
    assert result.log_append_time_ms == 77
    assert [record.timestamp_ms for record in decode(batch)] == [77, 77]


def test_an_older_epoch_never_appends(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(), epoch=4)
    with pytest.raises(ValueError, match="epoch 3 after 4"):
        append(log, make_batch(), epoch=3)


def test_a_repeated_batch_is_answered_with_its_first_place(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(2))
    first = make_batch(3, producer=(9, 0, 0))
    assert append(log, first) == 2
    again = make_batch(3, producer=(9, 0, 0))
    result = log.append_as_leader(again, read_header(again), leader_epoch=0, now_ms=0)
    assert (result.base_offset, result.last_offset, result.duplicate) == (2, 4, True)
    assert log.end_offset == 5
    with pytest.raises(ApiError) as caught:
        append(log, make_batch(1, producer=(9, 0, 4)))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 5


def test_a_follower_copies_the_leaders_bytes(disk: MemoryDisk) -> None:
    leader = open_log(disk)
    for number in range(30):
        append(leader, make_batch(2, producer=(1, 0, 2 * number)), epoch=number // 10)
    follower = opening.open_log(disk, "/d/t-1", SMALL, HandClock(), key=TopicPartition("t", 1))
    while follower.end_offset < leader.end_offset:
        follower.append_as_follower(leader.read(follower.end_offset, 700).data)
    assert follower.segment_bases == leader.segment_bases
    for base in leader.segment_bases:
        name = f"{base:020d}.log"
        assert disk.read_file(f"/d/t-0/{name}") == disk.read_file(f"/d/t-1/{name}")
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.producers.encode() == leader.producers.encode()


def test_a_follower_takes_whole_batches_only(disk: MemoryDisk) -> None:
    log = open_log(disk)
    first, second = make_batch(2, base_offset=0), make_batch(2, base_offset=2)
    result = log.append_as_follower(bytes(first + second)[:-1])
    assert (result.base_offset, result.last_offset, log.end_offset) == (0, 1, 2)


@pytest.mark.parametrize(
    ("batch", "error", "why"),
    [
        (make_batch(2, base_offset=1), OutOfOrderOffsetsError, "at 1, the log ends at 3"),
        (make_batch(2, base_offset=2), OutOfOrderOffsetsError, "at 2, the log ends at 3"),
        (
            make_batch(2, base_offset=3, leader_epoch=-1),
            OutOfOrderOffsetsError,
            "of epoch -1 at 3, the log is in epoch 0",
        ),
        (make_batch(2, base_offset=3)[:-1] + b"x", CorruptBatchError, "CRC of the batch at 3"),
    ],
)
def test_a_faulty_batch_stops_a_follower_behind_the_good_ones(
    disk: MemoryDisk, batch: bytearray, error: type[Exception], why: str
) -> None:
    log = open_log(disk)
    with pytest.raises(error, match=why):
        log.append_as_follower(make_batch(3) + batch)
    assert log.end_offset == 3
    assert read_all(log) == [0]


def test_segments_are_cut_by_size(disk: MemoryDisk) -> None:
    log = open_log(disk)
    size = len(make_batch())
    for _ in range(40):
        append(log, make_batch())
    per_segment = 1000 // size
    assert log.segment_bases == list(range(0, 40, per_segment))
    assert read_all(log) == list(range(40))
    assert disk.exists(f"/d/t-0/{per_segment:020d}.snapshot")
    assert len(disk.read_file(f"/d/t-0/{0:020d}.index")) % 8 == 0


def test_segments_are_cut_by_the_records_time(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, segment_ms=100))
    for timestamp_ms in (0, 50, 100, 101, 150, 202):
        append(log, make_batch(timestamp_ms=timestamp_ms))
    assert log.segment_bases == [0, 3, 5]


def test_jitter_shortens_a_segments_time_alike_on_every_replica(disk: MemoryDisk) -> None:
    config = LogConfig(segment_ms=1000, segment_jitter_ms=800)
    leader = opening.open_log(disk, "/a/t-0", config, HandClock(), key=KEY)
    follower = opening.open_log(disk, "/b/t-0", config, HandClock(), key=KEY)
    for timestamp_ms in range(0, 20_000, 50):
        append(leader, make_batch(timestamp_ms=timestamp_ms))
    while follower.end_offset < leader.end_offset:
        follower.append_as_follower(leader.read(follower.end_offset, 700).data)
    bases = leader.segment_bases
    assert follower.segment_bases == bases
    lengths = {after - before for before, after in pairwise(bases)}
    assert len(lengths) > 3
    assert all(200 // 50 <= length <= 1000 // 50 + 1 for length in lengths)


def test_segments_are_cut_when_the_index_is_full(disk: MemoryDisk) -> None:
    log = open_log(
        disk, LogConfig(segment_index_bytes=24, index_interval_bytes=0, segment_bytes=1 << 20)
    )
    for _ in range(7):
        append(log, make_batch())
    assert log.segment_bases == [0, 3, 6]


def test_a_full_disk_refuses_and_keeps_the_log_sound(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch())
    disk.capacity = disk.used() + 20
    with pytest.raises(StorageError, match="free space"):
        append(log, make_batch())
    assert log.end_offset == 1
    assert log.offline is None
    disk.capacity = None
    assert append(log, make_batch()) == 1
    assert read_all(log) == [0, 1]


def test_a_failing_disk_takes_the_log_offline(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch())
    disk.append_error = errno.EIO
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            append(log, make_batch())
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(StorageError, match="offline"):
        log.read(0, 100)


# ------------------------------------------------------------------------------- read


def test_a_read_begins_with_the_batch_that_holds_the_offset(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, segment_bytes=1 << 20))
    for _ in range(30):
        append(log, make_batch(10))
    for offset in range(300):
        assert offsets_in(log, offset, max_bytes=1)[0] == offset // 10 * 10


def test_a_read_ends_with_a_whole_batch_below_the_limit(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, segment_bytes=1 << 20))
    for _ in range(30):
        append(log, make_batch(10))
    size = len(make_batch(10))
    for limit in range(0, 301, 10):
        for count in (1, 2, 5, 30):
            result = log.read(20, count * size + size - 1, limit_offset=limit)
            expected = list(range(20, min(limit, 20 + count * 10), 10))
            assert [h.base_offset for _, h in batches(result.data)] == expected
            assert len(result.data) == len(expected) * size
            assert result.next_offset == (expected[-1] + 10 if expected else 20)


def test_one_batch_comes_even_if_it_is_too_large(disk: MemoryDisk) -> None:
    log = open_log(disk, replace(SMALL, segment_bytes=1 << 20))
    append(log, make_batch(size=5000))
    append(log, make_batch())
    assert offsets_in(log, 0, max_bytes=10) == [0]
    assert offsets_in(log, 0, max_bytes=10, min_one_batch=False) == []
    assert log.read(0, 10, min_one_batch=False).next_offset == 0


def test_offsets_outside_are_refused_and_the_end_is_empty(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(3))
    assert log.read(3, 100).data == b""
    for offset in (-1, 4):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_cold_read_says_what_to_warm(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for _ in range(40):
        append(log, make_batch())
    disk.cold = True
    result = log.read(5, 300)
    rounds = 0
    while result.cold is not None:
        await log.warm(result.cold)
        result = log.read(5, 300)
        rounds += 1
    assert next(batches(result.data))[1].base_offset == 5
    assert 1 <= rounds <= 3


async def test_much_that_is_cold_is_read_in_pieces(disk: MemoryDisk) -> None:
    """A batch that is larger than a piece is warmed as a whole."""
    log = open_log(disk, LogConfig())
    sizes = [COLD_BYTES // 2, COLD_BYTES // 4, COLD_BYTES // 2, COLD_BYTES * 3, 100]
    for size in sizes:
        append(log, make_batch(value=bytes(size)))
    disk.cold = True
    offset, pieces = 0, []
    while offset < len(sizes):
        result = log.read(offset, 100 * COLD_BYTES)
        while result.cold is not None:
            await log.warm(result.cold)
            result = log.read(offset, 100 * COLD_BYTES)
        pieces.append(result.next_offset - offset)
        offset = result.next_offset
    assert pieces == [2, 1, 1, 1]
    large = {size for path, _, size in disk.warmed if size > COLD_BYTES}
    assert large == {COLD_BYTES * 3 + 77}


def test_a_start_reads_a_cold_log_and_waits_for_the_device(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_now = MemoryFile.read_now

    def warming(file: MemoryFile, position: int, size: int) -> bytes:
        file.disk.warmed.append((file.path, position, size))
        return read_now(file, position, size)

    log = open_log(disk)
    for _ in range(30):
        append(log, make_batch())
    log.prepare_clean_shutdown()
    log.close()
    log = open_log(disk, clean_shutdown=True)
    monkeypatch.setattr(MemoryFile, "read_now", warming)
    disk.cold = True
    assert [header.base_offset for header, _ in log.batches_now(7)] == [*range(7, 30)]


def test_a_wrong_index_is_found_out_and_made_anew(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for _ in range(40):
        append(log, make_batch())
    log.sync_now()
    log.close()
    path = f"/d/t-0/{0:020d}.index"
    disk.flip(path, 7)  # a position that is no batch's
    log = open_log(disk, recovery_point=40, clean_shutdown=True)
    assert [offsets_in(log, offset, 1) for offset in range(40)] == [[n] for n in range(40)]


def test_a_wrong_index_does_not_pass_for_a_corrupt_log(disk: MemoryDisk) -> None:
    config = replace(SMALL, segment_bytes=1 << 20)
    log = open_log(disk, config)
    for _ in range(40):
        append(log, make_batch())
    log.prepare_clean_shutdown()
    log.sync_now()
    log.close()
    path = f"/d/t-0/{0:020d}.index"
    entries = len(disk.read_file(path)) // 8
    for entry in range(1, entries - 1):
        sound = bytes(disk.inodes[path].data)
        disk.flip(path, entry * 8 + 7)
        log = open_log(disk, config, recovery_point=40, clean_shutdown=True)
        for max_bytes in (200, 700, 1500):
            assert offsets_in(log, 0, max_bytes) == list(range(max_bytes // len(make_batch())))
        disk.inodes[path].data[:] = sound


def test_what_is_no_batch_within_a_read_is_corrupt(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig())
    for _ in range(3):
        append(log, make_batch())
    segment = log.segments.active
    disk.flip(segment.path, segment.size // 3 + 16)  # the magic byte of the second batch
    with pytest.raises(CorruptLogError, match="no batch stands here"):
        log.read(0, 1 << 20, limit_offset=2)


def test_a_file_that_ends_inside_a_batch_is_corrupt(disk: MemoryDisk) -> None:
    log = open_log(disk, LogConfig())
    append(log, make_batch())
    segment = log.segments.active
    data = disk.inodes[segment.path].data
    length = int.from_bytes(data[8:12], "big")
    data[8:12] = (length - 10).to_bytes(4, "big")
    with pytest.raises(CorruptLogError, match="ends inside a batch"):
        segment.locate(log.end_offset)


def test_the_rest_of_a_segment_is_read_without_its_indexes(disk: MemoryDisk) -> None:
    log = open_log(disk)
    while len(log.segment_bases) == 1:
        append(log, make_batch())
    segment = log.segments.all()[0]
    segment.unload()
    disk.unreadable.update(segment.index_paths())
    found = segment.read(
        0, 1 << 20, limit_offset=segment.end_offset, min_one_batch=True, position=0
    )
    assert not isinstance(found, ColdRange)
    assert len(found.data) == segment.size
    assert not segment.indexes_lost


def test_a_closed_log_refuses(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch())
    log.close()
    with pytest.raises(StorageError, match="closed"):
        append(log, make_batch())
    with pytest.raises(StorageError, match="closed"):
        log.read(0, 1)


# ------------------------------------------------------------------------------- truncate


@pytest.mark.parametrize("offset", [0, 1, 9, 10, 35, 390, 399, 400, 500])
def test_truncate(disk: MemoryDisk, offset: int) -> None:
    log = open_log(disk)
    for number in range(40):
        append(log, make_batch(10, producer=(5, 0, 10 * number)), epoch=number // 10)
    log.sync_now()
    assert log.truncate_to(offset) == min(offset // 10 * 10, 400)
    end = log.end_offset
    assert read_all(log) == list(range(0, end, 10))
    assert log.durable_offset == log.synced_offset == end
    assert log.truncation_generation == (1 if offset < 400 else 0)
    assert log.epochs.entries == [(n, n * 100) for n in range(4) if n * 100 < end]
    assert append(log, make_batch(10, producer=(5, 0, end)), epoch=9) == end
    assert offsets_in(log, end) == [end]


def test_after_a_truncation_the_disk_holds_what_is_left(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for _ in range(40):
        append(log, make_batch(10))
    log.truncate_to(95)
    disk.power_loss()
    assert read_all(open_log(disk)) == list(range(0, 90, 10))


def test_reset_begins_anew(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for _ in range(40):
        append(log, make_batch(producer=(5, 0, 0)) if log.end_offset == 0 else make_batch())
    log.reset_to(1000)
    assert (log.start_offset, log.end_offset, log.durable_offset) == (1000, 1000, 1000)
    assert len(log.producers) == 0
    assert append(log, make_batch()) == 1000
    disk.power_loss()
    log = open_log(disk)
    assert (log.start_offset, log.end_offset) == (1000, 1000)


def test_truncating_below_the_start_resets(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for _ in range(40):
        append(log, make_batch())
    log.advance_start_offset(30)
    log.remove_dead_segments()
    assert log.truncate_to(3) == 3
    assert log.start_offset == 3


def test_epoch_ends(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, make_batch(5), epoch=1)
    log.assign_leader_epoch(3)
    assert log.end_offset_for_epoch(1) == EpochEndOffset(1, 5)
    assert log.end_offset_for_epoch(2) == EpochEndOffset(1, 5)
    assert log.end_offset_for_epoch(3) == EpochEndOffset(3, 5)
    assert log.end_offset_for_epoch(4) == EpochEndOffset(-1, -1)


# ------------------------------------------------------------------------------- time


async def test_offsets_by_time(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for number in range(40):
        append(log, make_batch(10, timestamp_ms=number * 100))  # 0..9, 100..109, …
    for asked, offset in ((0, 0), (5, 5), (10, 10), (100, 10), (3901, 391), (3909, 399)):
        found = await log.offset_for_timestamp(asked)
        assert found is not None
        assert found.offset == offset
    assert await log.offset_for_timestamp(3910) is None
    newest = await log.max_timestamp_offset()
    assert newest is not None
    assert (newest.timestamp_ms, newest.offset) == (3909, 399)


async def test_times_that_fall_are_found_too(disk: MemoryDisk) -> None:
    log = open_log(disk)
    times = [500, 100, 900, 300, 700] * 8
    for timestamp_ms in times:
        append(log, make_batch(timestamp_ms=timestamp_ms))
    for asked in (0, 100, 101, 500, 501, 701, 900):
        found = await log.offset_for_timestamp(asked)
        assert found is not None
        assert found.offset == next(n for n, time in enumerate(times) if time >= asked)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 50), min_size=1, max_size=4), min_size=1, max_size=30),
    st.integers(0, 130),
    st.integers(0, 130),
    st.booleans(),
)
@example([[1, 9, 99]], 1, 2, False)  # the first record that counts is the only one
@example([[9, 1], [99]], 1, 2, False)  # its batch has a greater one that does not count
def test_the_newest_record_is_one_of_the_records_that_count(
    times: list[list[int]], start_offset: int, limit_offset: int, cold: bool
) -> None:
    """Neither one that DeleteRecords has removed, nor one that is not committed."""
    disk = MemoryDisk()
    log = open_log(disk, replace(SMALL, segment_bytes=1024))
    offsets: list[tuple[int, int]] = []  # minus the time, and the offset
    for batch in times:
        builder = BatchBuilder()
        for timestamp_ms in batch:
            offsets.append((-timestamp_ms, len(offsets)))
            builder.append(None, b"v" * 50, timestamp_ms=timestamp_ms)
        append(log, builder.build())
    start_offset = min(start_offset, len(offsets))
    log.advance_start_offset(start_offset)
    disk.cold = cold
    found = asyncio.run(log.max_timestamp_offset(limit_offset))
    counted = [each for each in offsets[start_offset:limit_offset] if each[0] <= 0]
    if counted:
        assert found is not None
        assert (-found.timestamp_ms, found.offset) == min(counted)
    else:
        assert found is None


async def test_by_time_after_reopening_and_while_cold(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for number in range(40):
        append(log, make_batch(timestamp_ms=number))
    log.prepare_clean_shutdown()
    log.sync_now()
    log.close()
    log = open_log(disk, recovery_point=40, clean_shutdown=True)
    disk.cold = True
    found = await log.offset_for_timestamp(17)
    assert found is not None
    assert found.offset == 17
