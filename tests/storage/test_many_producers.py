"""The state of many producers: snapshots in slices, truncations without reading any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from stele.wire.batch import read_header
from stele.wire.control_records import end_marker_batch
from storage import cutting
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.opening import open_log
from storage.producer_state import ENTRIES_PER_TURN, ProducerStates, SnapshotEncoding
from storage.snapshots import newest_snapshot, snapshot_offsets, write_snapshot
from storage.steps import Turn
from tests.support.batches import header_of, make_batch
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import HandClock

PATH = "/d/t-0"
MANY = 3000


def opened(disk: MemoryDisk, config: LogConfig | None = None) -> PartitionLog:
    key = TopicPartition("t", 0)
    return open_log(disk, PATH, config or LogConfig(), HandClock(), key=key)


def described(log: PartitionLog) -> tuple[object, ...]:
    states = log.producers
    return sorted(states), states.open_transactions(), log.transactions.first_open_offset


Event = tuple[str, int]
events = st.lists(
    st.tuples(st.sampled_from(["plain", "transactional", "abort", "commit"]), st.integers(0, 3)),
    max_size=40,
)


def play(log: PartitionLog, written: list[Event]) -> None:
    for kind, producer in written:
        entry = log.producers.get(producer)
        is_open = log.producers.is_open(producer, 0)
        if kind in ("plain", "transactional"):
            sequence = 0 if entry is None else entry.last_sequence + 1
            is_transactional = kind == "transactional" or is_open
            batch = make_batch(
                1, producer=(producer, 0, sequence), is_transactional=is_transactional
            )
            append(log, batch)
        else:
            commits = kind == "commit"
            marker = bytearray(
                end_marker_batch(producer, 0, commit=commits, coordinator_epoch=1, timestamp_ms=1)
            )
            header = read_header(marker)
            log.append_as_leader(
                marker, header, leader_epoch=0, now_ms=1_000_000, check_sequence=False
            )


@given(events, st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_a_truncation_leaves_the_producers_of_what_is_left(
    written: list[Event], end: int, committed: int, settles: bool
) -> None:
    log, twin = opened(MemoryDisk()), opened(MemoryDisk())
    play(log, written)
    if settles:
        log.producers.settle(min(committed, log.end_offset))
    end = min(end, log.end_offset)
    log.truncate_to(end)
    play(twin, written[:end])
    if not settles or end >= committed:
        assert described(log) == described(twin)
    again = [(each.producer_id, each.epoch, each.last_offset) for each in sorted(log.producers)]
    assert again == [(x.producer_id, x.epoch, x.last_offset) for x in sorted(twin.producers)]
    assert log.producers.open_transactions() == twin.producers.open_transactions()


def test_a_truncation_above_the_high_watermark_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("it reads a snapshot")

    log = opened(MemoryDisk())
    for number in range(200):
        append(log, make_batch(1, producer=(number, 0, 0)))
        commit(log, max(0, number - 5))
    assert log.producers.undoable < 100
    monkeypatch.setattr(cutting, "rebuild_producers", fail)
    log.truncate_to(196)
    assert sorted(each.producer_id for each in log.producers) == list(range(196))


def filled(disk: MemoryDisk) -> PartitionLog:
    log = opened(disk, LogConfig(segment_bytes=1 << 30))
    for number in range(MANY):
        append(log, make_batch(1, size=1, producer=(number, 0, 0)))
    return log


def roll(log: PartitionLog, config: LogConfig) -> None:
    log.configure(LogConfig(segment_bytes=1))
    append(log, make_batch(1))
    log.configure(config)


def test_a_snapshot_of_many_producers_is_of_its_offset_whatever_follows() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    roll(log, LogConfig())
    assert MANY not in snapshot_offsets(disk, PATH)
    count = 0
    while MANY not in snapshot_offsets(disk, PATH):
        append(log, make_batch(1, producer=(count, 0, 1)))
        count += 1
    assert 5 < count < 20
    data = disk.read_file(f"{PATH}/{MANY:020d}.snapshot")
    states = ProducerStates.decode(data)
    assert [each.last_offset for each in states] == list(range(MANY))
    log.sync_now()
    assert opened(disk).producers.get(0) == log.producers.get(0)


def test_a_truncation_drops_a_snapshot_that_was_begun_above_it() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    roll(log, LogConfig())
    log.truncate_to(MANY - 1)
    for _ in range(50):
        append(log, make_batch(1, producer=(9, 0, 1)) if log.end_offset < MANY else make_batch(1))
    assert MANY not in snapshot_offsets(disk, PATH)


async def test_segments_go_only_when_the_snapshot_is_complete() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    roll(log, LogConfig())
    log.advance_start_offset(MANY)
    assert await log.retire_dead_segments() == 1
    log.sync_now()
    assert len(opened(disk).producers) == MANY


async def test_each_segment_begins_with_a_snapshot_however_fast_they_follow() -> None:
    """The snapshot of one is not complete when the next one begins."""
    disk = MemoryDisk()
    log = filled(disk)
    roll(log, LogConfig())
    late = MANY + 7
    append(log, make_batch(1, producer=(late, 0, 0)))
    roll(log, LogConfig())
    log.sync_now()
    log.advance_start_offset(log.segment_bases[-1])
    assert await log.retire_dead_segments() == 2
    disk.power_loss()
    again = opened(disk)
    assert len(again.producers) == MANY + 1
    assert again.producers.get(late) == log.producers.get(late)


def test_snapshots_of_small_segments_do_not_pile_up() -> None:
    disk = MemoryDisk()
    log = opened(disk, LogConfig(segment_bytes=1))
    for number in range(MANY):
        append(log, make_batch(1, size=1, producer=(number, 0, 0)))
    incomplete = set(log.segment_bases[1:]) - set(snapshot_offsets(disk, PATH))
    assert 0 < len(incomplete) < 20


def test_snapshots_are_decoded_in_slices() -> None:
    disk = MemoryDisk()
    disk.make_directory(PATH)
    states = ProducerStates()
    for number in range(MANY):
        states.update(header_of(make_batch(1, producer=(number, 0, 0))), number, 0)
    encoding = SnapshotEncoding(states)
    assert not encoding.go_on()
    write_snapshot(disk, PATH, MANY, states.encode())
    steps = newest_snapshot(disk, PATH, MANY)
    assert [next(steps) for _ in range(MANY // ENTRIES_PER_TURN)] == [Turn.OVER] * (
        MANY // ENTRIES_PER_TURN
    )
    with pytest.raises(StopIteration) as end:
        next(steps)
    found, offset = end.value.value
    assert (len(found), offset) == (MANY, MANY)


def test_expiration_comes_in_slices_in_which_producers_may_change() -> None:
    states = ProducerStates()
    for number in range(MANY):
        states.update(header_of(make_batch(1, producer=(number, 0, 0))), number, 0)
    expiring = states.expiring(1000, 500)
    next(expiring)
    states.update(header_of(make_batch(1, producer=(MANY - 1, 0, 1))), MANY, 900)
    list(expiring)
    assert [each.producer_id for each in states] == [MANY - 1]
