"""Where segments end: by their bytes, by their index, and by the range of their offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from stele.wire.batch import NO_TIMESTAMP, stamp
from stele.wire.control_records import end_marker_batch
from storage.config import LogConfig
from storage.errors import OutOfOrderOffsetsError
from storage.log import PartitionLog
from storage.opening import open_log
from storage.runs import runs_of
from storage.segment_room import LogRoom
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk
from tests.support.timing import HandClock

PATH = "/d/t-0"
RANGE = 1 << 31


def opened(
    disk: MemoryDisk, config: LogConfig | None = None, *, clean: bool = False
) -> PartitionLog:
    key = TopicPartition("t", 0)
    log_config = config or LogConfig()
    return open_log(disk, PATH, log_config, HandClock(), key=key, clean_shutdown=clean)


@st.composite
def batch_lists(draw: st.DrawFn) -> list[bytearray]:
    offset, found = 0, []
    gaps = st.one_of(st.integers(0, 50), st.integers(RANGE - 60, RANGE - 30))
    for size in draw(st.lists(st.integers(1, 3000), min_size=1, max_size=12)):
        found.append(make_batch(1, size=size, base_offset=offset))
        offset += 1 + draw(gaps)
    return found


@given(batch_lists(), st.sampled_from([16, 24, 40, 10 << 20]), st.sampled_from([2000, 1 << 30]))
def test_a_run_rolls_where_single_batches_do(
    batches: list[bytearray], index_bytes: int, segment_bytes: int
) -> None:
    config = LogConfig(
        segment_bytes=segment_bytes, segment_index_bytes=index_bytes, index_interval_bytes=1000
    )
    whole, single = opened(MemoryDisk(), config), opened(MemoryDisk(), config)
    for batch in batches:
        single.append_as_follower(batch)
    whole.append_as_follower(b"".join(batches))
    assert whole.segment_bases == single.segment_bases
    assert whole.end_offset == single.end_offset
    for segment in whole.segments:
        assert segment.end_offset - segment.base_offset <= RANGE
        assert segment.index_entries * 8 <= max(index_bytes, 8)


@given(
    st.lists(st.sampled_from([NO_TIMESTAMP, 1000, 1400, 1900, 2500]), min_size=2, max_size=8),
    st.sampled_from([0, 400, 1200]),
)
def test_a_run_rolls_by_time_where_single_batches_do(times: list[int], passed_ms: int) -> None:
    """Also where some batches have no time, and the age of the segment counts."""
    config = LogConfig(segment_ms=1000)
    bases = []
    for as_run in (True, False):
        clock = HandClock()
        key = TopicPartition("t", 0)
        log = open_log(MemoryDisk(), PATH, config, clock, key=key)
        batches = [
            make_batch(1, timestamp_ms=time_ms, base_offset=offset)
            for offset, time_ms in enumerate(times)
        ]
        log.append_as_follower(batches.pop(0))
        clock.now_ms += passed_ms
        for data in [b"".join(batches)] if as_run else batches:
            log.append_as_follower(data)
        bases.append(log.segment_bases)
    assert bases[0] == bases[1]


def test_a_run_across_the_range_of_a_segment_goes_into_two() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    run = [make_batch(1, size=3000, base_offset=each) for each in (0, 99, 100, 200)]
    run += [make_batch(1, size=3000, base_offset=each + RANGE) for each in (50, 60, 99)]
    log.append_as_follower(b"".join(run))
    assert log.segment_bases == [0, 201]
    log.sync_now()
    again = opened(disk)
    assert (again.end_offset, again.truncated_bytes) == (RANGE + 100, 0)
    assert [header.base_offset for header, _ in again.batches_now(0)][-1] == RANGE + 99


def test_an_offset_that_no_index_entry_can_name_is_found_all_the_same() -> None:
    """A segment that spans more than 2^31 offsets opens, and ends with the next batch."""
    disk = MemoryDisk()
    log = opened(disk)
    log.append_as_follower(make_batch(1, size=5000))
    file = disk.open(log.segments.active.path)
    for each in (10, 20, 30):
        file.append([make_batch(1, size=5000, base_offset=RANGE + each)])
    again = opened(disk)
    assert again.segment_bases == [0]
    assert [header.base_offset for header, _ in again.batches_now(RANGE + 20)] == [
        RANGE + 20,
        RANGE + 30,
    ]
    again.append_as_follower(make_batch(1, base_offset=RANGE + 31))
    assert again.segment_bases == [0, RANGE + 31]
    again.prepare_clean_shutdown()
    assert opened(disk, clean=True).end_offset == RANGE + 32


def test_a_gap_that_no_segment_has_room_for_is_refused() -> None:
    log = opened(MemoryDisk())
    log.append_as_follower(make_batch(1))
    good = make_batch(1, base_offset=1)
    bad = make_batch(1, base_offset=RANGE + 10)
    with pytest.raises(OutOfOrderOffsetsError, match="no segment has room"):
        log.append_as_follower(good + bad)
    assert log.end_offset == 2
    assert log.offline is None


@pytest.mark.parametrize(("commit", "runs"), [(True, [3]), (False, [1, 1, 1])])
def test_only_an_abort_marker_is_written_alone(commit: bool, runs: list[int]) -> None:
    """Its entry of the transaction index is written before it."""
    marker = end_marker_batch(7, 0, commit=commit, coordinator_epoch=1, timestamp_ms=0)
    stamp(marker, 0, base_offset=1, leader_epoch=0)
    data = make_batch(1) + marker + make_batch(1, base_offset=2)
    log = opened(MemoryDisk())
    room = LogRoom(log.config, log.name)
    found = runs_of(memoryview(data), log, room, verify_crc=True, now_ms=0)
    assert [len(run.batches) for run in found] == runs
