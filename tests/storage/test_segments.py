"""The list of a log's segments: where readers go on, and which segments are at an offset."""

from __future__ import annotations

from typing import Final

import pytest

from storage.config import LogConfig
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.partition_log import open_log
from tests.support.storage import MemoryDisk, append

SIZE: Final = len(make_batch())
READERS: Final = 32
"""As many have their next position remembered."""


def filled(count: int, *, to_a_segment: int, disk: MemoryDisk | None = None) -> PartitionLog:
    """A log of batches of one record, so many to a segment."""
    config = LogConfig(segment_bytes=to_a_segment * SIZE, index_interval_bytes=1 << 20)
    log = open_log(disk or MemoryDisk(), config)
    for _ in range(count):
        append(log, make_batch())
    return log


def remembered(log: PartitionLog, offset: int) -> int | None:
    """The position from which a reader of ``offset`` goes on without a search."""
    return log.segments.place_of(offset)[1]


# ------------------------------------------------------------------------------- readers


def test_a_reader_goes_on_where_it_has_stopped() -> None:
    log = filled(5, to_a_segment=3)
    log.read(0, SIZE)
    sealed, active = log.segments.all()
    assert log.segments.place_of(1) == (sealed, SIZE)
    log.read(1, 2 * SIZE)
    assert log.segments.place_of(3) == (active, None), "it begins there, as the index says"
    log.read(3, 2 * SIZE)
    assert log.segments.place_of(5) == (active, 2 * SIZE), "the place of the next batch"
    append(log, make_batch())
    assert log.read(5, SIZE).next_offset == 6


def test_a_reader_that_comes_again_costs_no_other_one_its_place() -> None:
    log = filled(READERS + 2, to_a_segment=100)
    for offset in range(READERS):
        log.read(offset, SIZE)
    log.read(READERS - 1, SIZE)
    places = [remembered(log, offset + 1) for offset in range(READERS)]
    assert places == [(offset + 1) * SIZE for offset in range(READERS)]


def test_the_place_that_was_remembered_first_is_forgotten_first() -> None:
    """The bound is that of a log's memory."""
    log = filled(READERS + 2, to_a_segment=100)
    for offset in range(READERS + 1):
        log.read(offset, SIZE)
    places = [remembered(log, offset + 1) for offset in range(READERS + 1)]
    assert places == [None, *((offset + 1) * SIZE for offset in range(1, READERS + 1))]


# ------------------------------------------------------------------------------- cuts


def test_a_cut_within_the_last_segment_needs_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note would be refused on a full disk, and cost two syncs."""
    disk = MemoryDisk()
    log = filled(5, to_a_segment=3, disk=disk)
    log.sync_now()
    monkeypatch.delattr(MemoryDisk, "replace_file_now")
    log.truncate_to(4)
    log.truncate_to(2)
    assert (log.end_offset, log.segment_bases) == (2, [0])


def test_a_segment_that_is_written_again_after_a_cut_is_not_closed_by_readers() -> None:
    log = filled(8 * 2, to_a_segment=2)
    log.sync_now()
    for base in log.segment_bases[-5:]:
        log.read(base, SIZE)
    log.truncate_to(log.segment_bases[-1])
    active = log.segments.active
    for base in log.segment_bases[:-1]:
        log.read(base, SIZE)
    assert active.intact


# ------------------------------------------------------------------------------- retention


@pytest.mark.parametrize(("start", "bases"), [(2, [0, 3, 6]), (3, [3, 6]), (8, [6]), (9, [6])])
def test_segments_go_that_end_at_the_start_or_below(start: int, bases: list[int]) -> None:
    log = filled(9, to_a_segment=3)
    log.advance_start_offset(start)
    assert log.segments.first_base_above(start) == bases[0]
    assert log.remove_dead_segments() == 3 - len(bases)
    assert log.segment_bases == bases


@pytest.mark.parametrize(("in_order", "start", "syncs"), [
    (False, 6, 0), (True, 6, 3), (True, 2, 0),
])  # fmt: skip
def test_removals_are_synced_only_where_a_crash_must_leave_no_gap(
    monkeypatch: pytest.MonkeyPatch, in_order: bool, start: int, syncs: int
) -> None:
    disk = MemoryDisk()
    log = filled(9, to_a_segment=3, disk=disk)
    log.sync_now()
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync_now", synced.append)
    log.advance_start_offset(start)
    log.remove_dead_segments(in_order=in_order)
    assert synced == [log.directory] * syncs
