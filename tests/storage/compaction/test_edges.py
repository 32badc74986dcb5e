"""Compaction: the bounds of surveys, of maps, of segments that become one, and of what is read."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from stele.wire.batch import NO_TIMESTAMP, stamp
from storage import segment_room
from storage.compaction import work
from storage.compaction.offset_map import OffsetMap
from storage.compaction.request import CompactionRequest, Failed, Finished, decode_answer
from storage.compaction.slots import SLOT_BYTES
from storage.compaction.survey import Survey, survey
from storage.compaction.work import UncleanableError
from storage.log import PartitionLog
from storage.long_work import Part
from storage.steps import Turn, Warm
from storage.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from tests.support.compaction import (
    CONFIG,
    LIMITS,
    compact,
    filled,
    keyed_batch,
    opened,
    records,
    roll,
    write,
)
from tests.support.storage import MemoryDisk


def test_the_bounds_of_a_survey() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    bases = log.segment_bases

    def surveyed(clean_end: int, limit: int, now_ms: int = 10**9) -> Survey:
        return asyncio.run(survey(log, clean_end, limit, now_ms))

    assert surveyed(0, bases[3]).segments[-1][1] == bases[3]
    assert surveyed(0, bases[3] - 1).segments[-1][1] == bases[2]
    assert surveyed(log.end_offset, log.end_offset).first_dirty == log.end_offset
    assert surveyed(log.end_offset + 1, log.end_offset).first_dirty == 0
    # Records of the future are old enough where no age is asked for.
    assert len(surveyed(0, log.end_offset, now_ms=0).segments) == len(bases) - 1
    end = bases[1]
    log.configure(dataclasses.replace(CONFIG, min_compaction_lag_ms=100))
    assert surveyed(0, end, now_ms=1_000_100).segments != ()
    assert surveyed(0, end, now_ms=1_000_099).segments == ()


def aged(ages_ms: list[int], disk: MemoryDisk | None = None) -> PartitionLog:
    """A log with a segment of each age."""
    log = opened(disk or MemoryDisk(), dataclasses.replace(CONFIG, max_compaction_lag_ms=1_000))
    for age_ms in ages_ms:
        segments = len(log.segment_bases)
        while len(log.segment_bases) == segments:
            write(log, [(b"k", b"v" * 90)], timestamp_ms=2_000_000 - age_ms)
    roll(log)
    return log


def is_overdue(log: PartitionLog, clean_end: int = 0, limit: int | None = None) -> bool:
    end = log.end_offset if limit is None else limit
    return asyncio.run(survey(log, clean_end, end, 2_000_000)).is_overdue


def test_a_dirty_record_may_be_overdue() -> None:
    assert is_overdue(aged([1_001, 0, 0]))
    assert not is_overdue(aged([1_000, 0, 0]))
    log = aged([1_001, 0, 0])
    assert not is_overdue(log, clean_end=log.segment_bases[1] + 4)


def test_deleted_records_are_not_overdue() -> None:
    log = aged([5_000, 5_000])
    second = log.segment_bases[1]
    log.advance_start_offset(1)
    assert is_overdue(log, limit=second)
    log.advance_start_offset(second)
    assert not is_overdue(log, limit=second), "nothing is left of the only cleanable segment"


def test_records_without_a_timestamp_are_not_overdue() -> None:
    """Nor is a header without records."""
    assert not is_overdue(aged([2_000_000 - NO_TIMESTAMP]))
    assert is_overdue(aged([2_000_000 - NO_TIMESTAMP - 1]))


def cut(log: PartitionLog) -> None:
    log.truncate_to(1)


def closed(log: PartitionLog) -> None:
    log.close()


@pytest.mark.parametrize("change", [cut, closed])
@pytest.mark.parametrize("turns", range(1, 6))
async def test_a_survey_ends_when_the_log_changes(
    turns: int, change: Callable[[PartitionLog], None]
) -> None:
    disk = MemoryDisk()
    log = aged([0, 5_000], disk)
    disk.cold = True
    surveying = asyncio.create_task(survey(log, 0, log.end_offset, 2_000_000))
    for _ in range(turns):
        await asyncio.sleep(0)
    change(log)
    assert (await surveying).first_dirty == 0


def test_without_a_greatest_lag_no_record_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    log = filled(disk)

    def read(*arguments: object, **options: object) -> None:
        raise AssertionError("it reads")

    monkeypatch.setattr(PartitionLog, "read", read)
    assert asyncio.run(survey(log, 0, log.end_offset, 10**9)).dirty_bytes


def merged(log: PartitionLog, disk: MemoryDisk, **config: Any) -> int:
    """How many of the first two segments are left after a round that can only merge them."""
    log.configure(dataclasses.replace(log.config, **config))
    compact(log, disk, limit=log.segment_bases[2])
    return len([each for each in log.segment_bases if each < 2])


def two_segments(disk: MemoryDisk) -> PartitionLog:
    """With one record each, of different keys."""
    log = opened(disk, dataclasses.replace(CONFIG, segment_bytes=1))
    for key in (b"a", b"b", b"c", b"d"):
        write(log, [(key, b"v")])
    assert log.segment_bases == [0, 1, 2, 3]
    log.sync_now()
    return log


def test_segments_become_one_if_all_of_them_has_room() -> None:
    def sizes(log: PartitionLog) -> int:
        return log.segments.at(0).size + log.segments.at(1).size

    for spare, left in ((0, 1), (-1, 2)):
        disk = MemoryDisk()
        log = two_segments(disk)
        assert merged(log, disk, segment_bytes=sizes(log) + spare) == left


@pytest.mark.parametrize(("entries", "left"), [(1, 1), (0, 2)])
def test_segments_become_one_if_their_indexes_have_room(entries: int, left: int) -> None:
    disk = MemoryDisk()
    log = two_segments(disk)
    room = entries * TIME_ENTRY_SIZE
    assert merged(log, disk, segment_bytes=1 << 20, segment_index_bytes=room) == left


@pytest.mark.parametrize(("greatest", "left"), [(5_000, 1), (4_999, 2)])
def test_segments_become_one_if_their_offsets_have_room(
    monkeypatch: pytest.MonkeyPatch, greatest: int, left: int
) -> None:
    disk = MemoryDisk()
    log = opened(disk, dataclasses.replace(CONFIG, segment_bytes=1))
    for offset in (0, 5_000, 5_001, 5_002):
        batch = keyed_batch([(b"%d" % offset, b"v")])
        stamp(batch, 0, base_offset=offset, leader_epoch=0)
        log.append_as_follower(batch)
    log.sync_now()
    first, second = log.segments.at(0), log.segments.at(1)
    monkeypatch.setattr(segment_room, "RELATIVE_OFFSET_MAX", greatest + second.end_offset - 5_001)
    log.configure(dataclasses.replace(CONFIG, segment_bytes=1 << 20))
    compact(log, disk, limit=second.end_offset)
    assert len([each for each in log.segment_bases if each <= second.base_offset]) == left
    assert first.base_offset == 0


def test_a_segment_that_is_larger_than_allowed_by_now_is_compacted_by_itself() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.configure(dataclasses.replace(CONFIG, segment_bytes=10))
    compact(log, disk)
    assert [each.offset for each in records(log)] == [36, 37, 38, 39, 40]


def test_a_header_at_the_end_of_a_segment_is_no_reason_to_write_it_again() -> None:
    disk = MemoryDisk()
    log = opened(disk, dataclasses.replace(CONFIG, segment_bytes=600))
    write(log, [(b"kept", b"v" * 300)])
    write(log, [(b"a", b"1")])
    write(log, [(b"a", b"2" * 300)])  # the next segment, and too large to go into the first one
    assert log.segment_bases == [0, 2]
    roll(log)
    compact(log, disk)
    ends = [list(segment.headers(0))[-1][1] for segment in log.segments.sealed()]
    assert 0 in [each.record_count for each in ends]
    answers = [decode_answer(*each.value) for each in worked(disk, log) if isinstance(each, Part)]
    assert [type(each) for each in answers] == [Finished]


def test_a_batch_that_was_kept_empty_for_its_producer_goes_with_it() -> None:
    disk = MemoryDisk()
    log = opened(disk, dataclasses.replace(CONFIG, segment_bytes=10_000))
    write(log, [(b"k", b"1")], producer=(9, 0, 0))
    write(log, [(b"k", b"2")])
    write(log, [(b"j", b"3")])
    roll(log)
    compact(log, disk)
    assert [header.base_offset for header, _ in log.batches_now(0)][:2] == [0, 1]
    log.producers.expire(1 << 50, 0)
    compact(log, disk)
    assert next(header.base_offset for header, _ in log.batches_now(0)) == 1


def test_the_keys_of_clean_records_need_no_room() -> None:
    disk = MemoryDisk()
    log = filled(disk, 40, keys=40)
    first_dirty = log.segment_bases[3] + 1
    assert first_dirty not in log.segment_bases
    dirty = log.segment_bases[-1] - first_dirty
    size = next(
        slots
        for slots in range(3, 200)
        if OffsetMap(slots * SLOT_BYTES, 1.0, 1 << 40).capacity >= dirty
    )
    limits = LIMITS._replace(map_bytes=size * SLOT_BYTES, load_factor=1.0)
    capacity = OffsetMap(size * SLOT_BYTES, 1.0, 1 << 40).capacity
    finished = compact(log, disk, clean_end=first_dirty - (capacity - dirty), limits=limits)
    assert finished is not None
    assert finished.clean_end == log.segment_bases[-1]


@pytest.mark.parametrize("is_within", [False, True])
def test_a_map_that_is_too_small_is_reported_wherever_the_first_dirty_batch_is(
    is_within: bool,
) -> None:
    disk = MemoryDisk()
    log = opened(disk, dataclasses.replace(CONFIG, segment_bytes=10_000))
    write(log, [(b"a", b"v")])
    roll(log)
    if is_within:
        write(log, [(b"b", b"v")])
    clean_end = log.end_offset
    write(log, [(b"%d" % number, b"v") for number in range(50)])
    roll(log)
    with pytest.raises(UncleanableError, match="too small"):
        compact(log, disk, clean_end=clean_end, limits=LIMITS._replace(map_bytes=5 * SLOT_BYTES))


def test_only_segments_below_the_end_of_the_map_are_written_again() -> None:
    for slots in range(8, 40):
        disk = MemoryDisk()
        log = filled(disk, 60, keys=60)
        sizes = {each.base_offset: each.size for each in log.segments}
        limits = LIMITS._replace(map_bytes=slots * SLOT_BYTES)
        finished = compact(log, disk, limits=limits)
        assert finished is not None
        below = [size for base, size in sizes.items() if base < finished.clean_end]
        assert finished.bytes_read == sum(below)


# ------------------------------------------------------------------------------- the work


def worked(disk: MemoryDisk, log: PartitionLog, **changes: Any) -> list[object]:
    """The steps of a round, and its answers, which nobody acts on."""
    found = asyncio.run(survey(log, 0, log.end_offset, 2_000_000))
    request = CompactionRequest(
        directory=log.directory,
        segments=found.segments,
        first_dirty=found.first_dirty,
        map_bytes=LIMITS.map_bytes,
        load_factor=LIMITS.load_factor,
        bytes_per_s=LIMITS.bytes_per_s,
        now_ms=2_000_000,
        delete_retention_ms=1_000,
        kept_batches=(),
        kept_markers=(),
        aborted_later=(),
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
    )
    return list(work.compact(disk, *request._replace(**changes)))


def failure(steps: list[object]) -> str:
    last = steps[-1]
    assert isinstance(last, Part)
    answer = decode_answer(*last.value)
    assert isinstance(answer, Failed)
    return answer.reason


@pytest.mark.parametrize("chunk_bytes", [61, 70, 150, 1 << 20])
def test_batches_may_be_larger_than_what_is_read_at_a_time(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(work, "_CHUNK_BYTES", chunk_bytes)
    disk = MemoryDisk()
    log = filled(disk)
    sizes = {each.path: each.size for each in log.segments}
    for step in worked(disk, log):
        if isinstance(step, Warm):
            assert step.size > 0
            assert step.position + step.size <= sizes[step.path]
    compact(log, disk)
    assert [each.offset for each in records(log)] == [36, 37, 38, 39, 40]


def test_a_segment_that_changed_after_the_survey_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    (base, end, size), *others = asyncio.run(survey(log, 0, log.end_offset, 2_000_000)).segments
    cut = worked(disk, log, segments=((base, end, size - 1), *others))
    assert "ends inside a batch" in failure(cut)
    longer = worked(disk, log, segments=((base, end + 1, size), *others))
    assert "ends at offset" in failure(longer)
    monkeypatch.setattr(work, "POSITION_MAX", 10)
    assert "too large" in failure(worked(disk, log))


def test_batches_in_another_order_are_reported() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    segment = log.segments.at(1)
    (_, first), (position, _) = list(segment.headers(0))[:2]
    disk.inodes[segment.path].data[position : position + 8] = first.base_offset.to_bytes(8, "big")
    expected = f"offset {first.base_offset} at byte {position} after {first.last_offset}"
    assert expected in failure(worked(disk, log))


@pytest.mark.parametrize("spare", [0, -1])
def test_a_segment_has_any_size_that_a_position_has(
    monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    disk = MemoryDisk()
    log = two_segments(disk)
    log.configure(dataclasses.replace(CONFIG, segment_bytes=1))
    monkeypatch.setattr(work, "POSITION_MAX", log.segments.at(0).size + spare)
    if spare < 0:
        assert "too large" in failure(worked(disk, log))
    else:
        last = worked(disk, log)[-1]
        assert isinstance(last, Part)
        assert isinstance(decode_answer(*last.value), Finished)


def test_long_work_is_divided_into_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_RECORDS_PER_TURN", 2)
    disk = MemoryDisk()
    log = filled(disk, 40)
    turns = [each for each in worked(disk, log) if each is Turn.OVER]
    segments = [each.end_offset - each.base_offset for each in log.segments.sealed()]
    # The map counts on over segments, and the writing begins anew in each of them.
    assert len(turns) == sum(segments) // 2 + sum(each // 2 for each in segments)
