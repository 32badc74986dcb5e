"""Reads at the limit, of what is not in memory, and of what cannot be read."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.errors import StorageError, UnreadableLogError
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.partition_log import SMALL, open_log
from tests.support.storage import MemoryDisk, append

SIZE = len(make_batch())
INDEX = f"/d/t-0/{0:020d}.index"


def filled(disk: MemoryDisk, count: int, config: LogConfig | None = None) -> PartitionLog:
    log = open_log(disk, config or replace(SMALL, segment_bytes=1 << 20))
    for _ in range(count):
        append(log, make_batch())
    return log


def with_a_sealed_segment(disk: MemoryDisk) -> PartitionLog:
    """Opened after a clean shutdown, so that it is not in memory."""
    log = filled(disk, 20, SMALL)
    log.prepare_clean_shutdown()
    log.sync_now()
    log.close()
    return open_log(disk, recovery_point=20, high_watermark_checkpoint=20, clean_shutdown=True)


# ------------------------------------------------------------------------------- the limit


def test_a_limit_above_the_end_is_the_end() -> None:
    log = filled(MemoryDisk(), 3)
    assert log.read(3, 100, limit_offset=9).data == b""
    assert len(log.read(0, 1000, limit_offset=9).data) == 3 * SIZE


def test_a_reader_at_its_limit_has_nothing_to_read_in_any_segment() -> None:
    """It waits for its limit to rise. None would have it read in vain."""
    log = filled(MemoryDisk(), 20, SMALL)
    assert [log.readable_bytes(offset, offset) for offset in (0, 1, 19, 20)] == [0] * 4
    assert log.readable_bytes(1, 0) == 0
    assert log.readable_bytes(0, 1) is None


# ------------------------------------------------------------------------------- not in memory


def test_bytes_are_not_counted_if_the_limit_is_not_in_memory() -> None:
    disk = MemoryDisk()
    log = filled(disk, 8)
    assert log.read(0, 2 * SIZE).next_offset == 2  # so the place of offset 2 is known
    disk.cold = True
    assert log.readable_bytes(2, 4) is None
    assert log.readable_bytes(2, 8) == 6 * SIZE


def test_records_that_no_recovery_has_seen_are_warmed_before_they_are_checked() -> None:
    """The place of the reader is known, so that nothing else is read before."""
    disk = MemoryDisk()
    filled(disk, 8).close()
    log = open_log(disk, recovery_point=8, high_watermark_checkpoint=8, clean_shutdown=True)
    log.read(0, SIZE)
    disk.cold = True
    cold = ColdRange(log.segments.active.path, SIZE, 3 * SIZE)
    assert log.read(1, 3 * SIZE).cold == cold


async def test_an_index_that_is_gone_when_it_is_warmed_is_made_anew() -> None:
    disk = MemoryDisk()
    log = with_a_sealed_segment(disk)
    disk.cold = True
    cold = log.read(3, 1).cold
    assert cold == ColdRange(INDEX, 0, len(disk.read_file(INDEX)))
    disk.remove(INDEX)
    await log.warm(cold)
    disk.cold = False
    again = log.read(3, 1).cold
    assert again == ColdRange(log.segments.all()[0].path, 0, 0)
    await log.warm(again)
    assert log.read(3, 1).next_offset == 4


async def test_an_index_that_cannot_be_read_when_it_is_warmed_is_made_anew() -> None:
    disk = MemoryDisk()
    log = with_a_sealed_segment(disk)
    disk.cold = True
    cold = log.read(3, 1).cold
    assert cold is not None
    disk.unreadable.add(INDEX)
    await log.warm(cold)
    assert log.segments.all()[0].indexes_lost
    assert log.offline is None


async def test_an_index_is_not_given_up_for_want_of_a_file_handle() -> None:
    disk = MemoryDisk()
    log = with_a_sealed_segment(disk)
    disk.cold = True
    cold = log.read(3, 1).cold
    assert cold is not None
    disk.open_error = errno.EMFILE
    with pytest.raises(StorageError, match="nothing was changed"):
        await log.warm(cold)
    assert not log.segments.all()[0].indexes_lost
    disk.open_error = None
    await log.warm(cold)


async def test_the_bytes_of_a_log_that_was_closed_and_deleted_are_no_loss() -> None:
    disk = MemoryDisk()
    log = filled(disk, 3)
    log.close()
    disk.remove_tree("/d/t-0")
    await log.warm(ColdRange(log.segments.active.path, 0, SIZE))


def test_a_reader_of_the_active_segment_does_not_have_it_closed() -> None:
    """Of the sealed ones only the last that were read stay open."""
    log = filled(MemoryDisk(), 60, SMALL)
    active = log.segments.active
    first = active.base_offset
    append(log, make_batch())
    assert log.read(first, SIZE).next_offset == first + 1
    assert log.read(first + 1, SIZE).data  # where a reader has stopped
    for base in log.segment_bases[:-1]:
        log.read(base, SIZE)
        log.read(base + 1, SIZE)
    assert active.intact
    open_ones = [each.base_offset for each in log.segments.sealed() if each.intact]
    assert open_ones == log.segment_bases[-5:-1]


# ------------------------------------------------------------------------------- not readable


@pytest.mark.parametrize("known", [True, False])
def test_what_cannot_be_read_is_named_with_its_place(known: bool) -> None:
    """The place of a reader that has stopped there is known."""
    disk = MemoryDisk()
    log = filled(disk, 8)
    if known:
        log.read(0, SIZE)
    disk.unreadable.add(log.segments.active.path)
    place = rf"at byte {SIZE if known else 0} \(offset 1\): it cannot be read"
    with pytest.raises(UnreadableLogError, match=place):
        log.read(1, 100)
    with pytest.raises(UnreadableLogError, match=place):
        log.readable_bytes(1, 4)
