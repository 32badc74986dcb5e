"""Which bytes at a log's end count as a torn write, and which as corruption.

Bytes that were never written are zeroes, sector by sector. Records may contain anything, also bytes
that look like a batch, or are one.
"""

from __future__ import annotations

import logging

import pytest

from stele.ids import TopicPartition
from stele.wire.batch import CRC_START, HEADER_SIZE, PREFIX_SIZE
from storage import opening, torn_writes
from storage.compaction.rewriting import emptied
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.recovery import RecoveryRequest, recover_segments
from storage.segment import Segment
from storage.steps import Step, Turn, Warm
from storage.torn_writes import find_batch
from tests.support.batches import header_of, make_batch
from tests.support.counting import CountingDisk
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock

FIRST = f"/d/t-0/{0:020d}.log"
SECTOR = 512
LARGE = 5 << 20
"""More than a scan reads at once."""
LIKE_A_MAGIC = b"\x02abcd\x00"
"""Where a batch has its magic, its CRC and the first byte of its attributes."""


def open_log(disk: MemoryDisk) -> PartitionLog:
    return opening.open_log(disk, "/d/t-0", LogConfig(), HandClock(), key=TopicPartition("t", 0))


def written(*batches: bytearray, disk: MemoryDisk | None = None) -> MemoryDisk:
    disk = disk or MemoryDisk()
    log = open_log(disk)
    for batch in batches:
        append(log, batch)
    log.close()
    return disk


def of_size(size_bytes: int, fill: bytes = b"v") -> bytearray:
    """A batch of exactly this many bytes."""
    return next(
        batch
        for size in range(size_bytes)
        if len(batch := make_batch(value=fill * size)) == size_bytes
    )


def data_of(disk: MemoryDisk) -> bytearray:
    return disk.inodes[FIRST].data


def searched(data: bytes) -> tuple[int | None, list[Step]]:
    """The position of a whole batch in a file whose first batch is at a cut, and the steps."""
    disk = MemoryDisk()
    disk.make_directory("/d/t-0")
    disk.replace_file_now(FIRST, data)
    steps: list[Step] = []
    search = find_batch(Segment(disk, "/d/t-0", 0, created_ms=0), 0, 0)
    while True:
        try:
            steps.append(next(search))
        except StopIteration as end:
            return end.value, steps


def with_claimed_size(batch: bytes | bytearray, size_bytes: int) -> bytearray:
    """The batch with another length in its header, which its CRC does not cover."""
    changed = bytearray(batch)
    changed[8:12] = (size_bytes - PREFIX_SIZE).to_bytes(4)
    return changed


def lose_sector(disk: MemoryDisk, position: int) -> None:
    """The device has not written a sector of the file, up to the sector's end."""
    start = position - position % SECTOR
    end = min(start + SECTOR, len(data_of(disk)))
    data_of(disk)[start:end] = bytes(end - start)


# ------------------------------------------------------------------------------- lost sectors


def test_a_sector_lost_behind_a_flipped_batch_is_no_excuse_for_it() -> None:
    disk = written(*(of_size(2 * SECTOR) for _ in range(3)))
    disk.flip(FIRST, 70)
    lose_sector(disk, 2 * SECTOR)
    with pytest.raises(CorruptLogError, match="a whole batch stands behind it"):
        open_log(disk)


def test_a_batch_that_compaction_has_emptied_counts_as_one_behind_a_damaged_batch() -> None:
    """It is nothing but a header, at the very end of the file."""
    disk = written(of_size(SECTOR))
    log = open_log(disk)
    log.append_as_follower(emptied(header_of(make_batch(producer=(7, 0, 0), base_offset=1))))
    log.close()
    assert len(data_of(disk)) == SECTOR + HEADER_SIZE
    disk.flip(FIRST, 70)
    with pytest.raises(CorruptLogError, match="a whole batch stands behind it"):
        open_log(disk)


@pytest.mark.parametrize("before", range(1, 8))
def test_the_zeroes_that_an_offset_begins_with_are_no_lost_sector(before: int) -> None:
    """``before`` bytes of the batch are in the sector in which it begins."""
    disk = written(of_size(SECTOR - before), make_batch(), make_batch())
    disk.flip(FIRST, SECTOR - before + 70)
    with pytest.raises(CorruptLogError, match="a whole batch stands behind it"):
        open_log(disk)


@pytest.mark.parametrize("left", [8, 9, 300])
def test_a_batch_in_a_record_of_a_torn_one_is_no_batch_behind_it(left: int) -> None:
    """The last sector was never written. The file has ``left`` bytes of it."""
    inner = bytes(make_batch(base_offset=1000))
    around = next(
        batch
        for size in range(2 * SECTOR, 4 * SECTOR)
        if len(batch := make_batch(value=inner + b"v" * size)) % SECTOR == left
    )
    disk = written(around)
    lose_sector(disk, len(data_of(disk)) - 1)
    assert open_log(disk).end_offset == 0


# ------------------------------------------------------------------------------- lookalikes


def test_older_batches_in_a_record_of_a_torn_one_are_no_batches_behind_it() -> None:
    old = make_batch()
    disk = written(old, make_batch(value=bytes(old) * 10))
    del data_of(disk)[-1:]
    assert open_log(disk).end_offset == 1


@pytest.mark.parametrize("base_offset", [0, 1, 2, 1 << 40])
@pytest.mark.parametrize("lost", [1, 500])
def test_any_batch_in_a_record_of_a_torn_one_is_no_batch_behind_it(
    base_offset: int, lost: int
) -> None:
    inner = bytes(make_batch(1, size=50, base_offset=base_offset))
    disk = written(make_batch(), make_batch(value=b"x" * 100 + inner * 20 + b"x" * 500))
    del data_of(disk)[-lost:]
    assert open_log(disk).end_offset == 1


def test_a_batch_in_a_record_does_not_hide_the_batch_behind_its_own() -> None:
    inner = bytes(make_batch(1, size=50, base_offset=1 << 40))
    disk = written(make_batch(), make_batch(value=inner * 9), make_batch(value=inner))
    disk.flip(FIRST, len(make_batch()) + 200)
    with pytest.raises(CorruptLogError, match="a whole batch stands behind"):
        open_log(disk)


@pytest.mark.parametrize("byte", [8, 9, 10, 11])
def test_a_damaged_length_hides_no_batch(byte: int) -> None:
    """It may seem to lead past the file, into a later batch, or into its own records."""
    for bit in range(8):
        disk = written(*(make_batch(value=b"v" * 300) for _ in range(4)))
        at = len(data_of(disk)) // 4 + byte
        data_of(disk)[at] ^= 1 << bit
        with pytest.raises(CorruptLogError, match="a whole batch stands behind"):
            open_log(disk)


@pytest.mark.parametrize("scan_bytes", [*range(62, 700, 29), 1 << 20])
@pytest.mark.parametrize("claimed", [300, 1 << 30])
def test_a_damaged_length_hides_no_batch_however_much_is_read_at_once(
    scan_bytes: int, claimed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records look like headers everywhere, also where one read ends and the next begins."""
    monkeypatch.setattr(torn_writes, "_SCAN_BYTES", scan_bytes)
    damaged = make_batch(value=LIKE_A_MAGIC * 100)
    claimed = max(claimed, len(damaged) + 10)
    data = with_claimed_size(damaged, claimed) + make_batch(value=b"v" * 100)
    found, steps = searched(bytes(data))
    assert found == len(damaged)
    reads = [step for step in steps if isinstance(step, Warm)][1:]
    assert all(read.size <= scan_bytes for read in reads)
    assert all(read.position + read.size <= len(data) for read in reads)


def test_a_torn_batch_behind_a_damaged_length_is_no_whole_one() -> None:
    damaged = make_batch(value=b"v" * 300)
    data = with_claimed_size(damaged, 1 << 20) + make_batch(value=b"v" * 100)[:-1]
    assert searched(bytes(data))[0] is None


def test_a_whole_batch_one_byte_behind_a_lost_header_is_found() -> None:
    data = b"v" + bytes(make_batch())
    found, steps = searched(data)
    assert found == 1
    assert steps == [Warm(FIRST, 1, len(data) - 1)]


@pytest.mark.parametrize("header", [make_batch()[:HEADER_SIZE], b"v" * HEADER_SIZE])
def test_a_search_among_many_lookalikes_lets_others_run_now_and_then(header: bytes) -> None:
    """Behind a header that claims too much, and behind a lost one."""
    data = with_claimed_size(header, 1 << 30) + LIKE_A_MAGIC * 3000 + bytes(HEADER_SIZE)
    found, steps = searched(bytes(data))
    assert found is None
    assert steps.count(Turn.OVER) == 2


def test_the_batches_in_a_torn_batch_of_the_next_segment_are_none() -> None:
    inner = bytes(make_batch(1, size=50, base_offset=1 << 40))
    torn = bytes(make_batch(value=inner * 5, base_offset=2))[:-1]
    disk = written(make_batch(), make_batch())
    del data_of(disk)[-1:]
    disk.replace_file_now(f"/d/t-0/{2:020d}.log", torn)
    assert open_log(disk).end_offset == 1


def test_many_headers_of_large_batches_do_not_take_for_ever() -> None:
    """Behind a lost header every byte may begin a batch, and each of these would be read whole."""
    header = make_batch()[:HEADER_SIZE]
    header[0:8] = (1000).to_bytes(8)
    count = 4000
    disk = CountingDisk()
    written(make_batch(), make_batch(), disk=disk)
    data = data_of(disk)
    data[len(data) // 2 + 16] = 9  # no magic
    size = count * HEADER_SIZE
    for number in range(count):
        header[8:12] = (size - (number + 1) * HEADER_SIZE).to_bytes(4)
        data += header
    work = disk.fresh()
    with pytest.raises(CorruptLogError, match="a whole batch stands behind"):
        open_log(disk)
    assert work.bytes_read < 100 << 20  # of 480 MiB


def test_some_headers_of_large_batches_are_all_tried() -> None:
    """They claim more than the file has, all together, and no batch stands at any of them."""
    header, count = make_batch()[:HEADER_SIZE], 500
    data = bytearray(b"v" * HEADER_SIZE)
    for number in range(count):
        data += with_claimed_size(header, (count - number) * HEADER_SIZE)
    assert searched(bytes(data))[0] is None


def test_what_only_looks_like_a_magic_is_no_batch() -> None:
    disk = written(make_batch(), make_batch(value=LIKE_A_MAGIC * 50))
    del data_of(disk)[-1:]
    assert open_log(disk).end_offset == 1


@pytest.mark.parametrize("position", [0, 15, 16])
def test_what_would_begin_before_its_file_is_no_batch(position: int) -> None:
    """In the segment after a torn write, where nothing needs to be whole."""
    disk = written(make_batch(), make_batch())
    del data_of(disk)[-1:]
    disk.replace_file_now(
        f"/d/t-0/{2:020d}.log", b"v" * position + LIKE_A_MAGIC + b"v" * HEADER_SIZE
    )
    log = open_log(disk)
    assert log.end_offset == 1
    assert log.segment_bases == [0]


def test_batches_that_would_go_past_the_file_are_not_read() -> None:
    """Otherwise bytes that look like many batches would be read as often, up to the end of the
    file."""
    header = make_batch()[:HEADER_SIZE]
    header[0:8] = (1000).to_bytes(8)
    header[8:12] = (1 << 30).to_bytes(4)
    disk = CountingDisk()
    written(make_batch(), make_batch(value=bytes(header) * 200), disk=disk)
    del data_of(disk)[-1:]
    work = disk.fresh()
    assert open_log(disk).end_offset == 1
    assert work.bytes_read < 10 * len(data_of(disk)) + 200 * 10 * HEADER_SIZE


def test_the_search_behind_a_cut_reads_each_byte_twice() -> None:
    """Once for the CRC of the batch, once to see whether it ends before its claimed end."""
    disk = written(make_batch(), make_batch())
    disk.replace_file_now(f"/d/t-0/{2:020d}.log", b"")
    size = len(make_batch())
    disk.flip(FIRST, size + 70)
    request = RecoveryRequest(
        disk,
        "/d/t-0",
        start_offset=0,
        recovery_point=0,
        high_watermark=0,
        clean_shutdown=False,
        index_interval_bytes=4096,
        now_ms=0,
    )
    reads = [step for step in recover_segments(request) if isinstance(step, Warm)]
    assert reads == [
        Warm(FIRST, 0, 2 * size),
        Warm(FIRST, size, size),
        Warm(FIRST, size + CRC_START, size - CRC_START),
    ]


# ------------------------------------------------------------------------------- large batches


def test_batches_larger_than_what_is_read_at_once_are_kept() -> None:
    disk = written(make_batch(), make_batch(1, size=LARGE), make_batch(1, size=LARGE))
    log = open_log(disk)
    assert log.end_offset == 3
    assert len(log.read(2, 1).data) > LARGE


def test_a_large_batch_that_was_damaged_is_torn_off() -> None:
    disk = written(make_batch(), make_batch(1, size=LARGE))
    disk.flip(FIRST, LARGE)
    assert open_log(disk).end_offset == 1


def test_a_large_batch_that_the_file_cuts_off_is_torn_off() -> None:
    disk = written(make_batch(), make_batch(1, size=LARGE))
    del data_of(disk)[-1:]
    assert open_log(disk).end_offset == 1


# ------------------------------------------------------------------------------- what is told


def test_nothing_is_said_of_a_log_that_is_whole(caplog: pytest.LogCaptureFixture) -> None:
    disk = written(make_batch(), make_batch())
    with caplog.at_level(logging.WARNING):
        assert open_log(disk).end_offset == 2
    assert caplog.text == ""


def test_an_older_format_is_named_in_words() -> None:
    disk = written(make_batch())
    data_of(disk)[16] = 1
    data_of(disk).extend(make_batch(base_offset=1))
    with pytest.raises(CorruptLogError, match=": magic 1, only 2 is known; a whole batch"):
        open_log(disk)
