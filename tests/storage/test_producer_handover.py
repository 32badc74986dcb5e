"""The producers that a follower gets from its leader, compared with a twin that has every batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.errors import SteleError
from stele.ids import TopicPartition
from stele.wire.batch import CONTROL, decode, read_header, stamp
from stele.wire.control_records import decode_end_marker, end_marker_batch
from storage import opening
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.producer_handover import FIRST, HandedProducers, ProducersPart, producers_below
from storage.producer_state import CACHED_BATCHES, NONE, ProducerStates, SnapshotError
from tests.support.batches import header_of, make_batch
from tests.support.storage import MemoryDisk
from tests.support.timing import HandClock

DIRECTORY = "/d/t-0"
NOW_MS = 5_000_000


class Known(NamedTuple):
    """What is known of one producer, but for the times."""

    epoch: int
    batches: tuple[tuple[int, int], ...]  # last sequence and base offset of each
    coordinator_epoch: int
    transaction_first_offset: int


def known(states: ProducerStates) -> dict[int, Known]:
    return {
        entry.producer_id: Known(
            entry.epoch,
            tuple((batch.last_sequence, batch.base_offset) for batch in entry.batches),
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for entry in states
    }


def told_by(log: Sequence[bytearray]) -> dict[int, Known]:
    """What these batches tell: the twin, which reads them all."""
    found: dict[int, Known] = {}
    for batch in log:
        header = read_header(batch)
        epoch, offset = header.producer_epoch, header.base_offset
        before = found.get(header.producer_id, Known(epoch, (), NONE, NONE))
        seen = before.batches if before.epoch == epoch else ()
        if header.attributes & CONTROL:
            coordinator = marker_epoch(batch)
            found[header.producer_id] = Known(epoch, seen, coordinator, NONE)
            continue
        first = before.transaction_first_offset
        if header.is_transactional and first == NONE:
            first = offset
        seen = (*seen, (header.last_sequence, offset))[-CACHED_BATCHES:]
        found[header.producer_id] = Known(epoch, seen, before.coordinator_epoch, first)
    return found


def marker_epoch(batch: bytearray) -> int:
    (record,) = decode(memoryview(batch))
    marker = decode_end_marker(record)
    assert marker is not None
    return marker.coordinator_epoch


def open_log(disk: MemoryDisk) -> PartitionLog:
    return opening.open_log(
        disk, DIRECTORY, LogConfig(segment_bytes=500), HandClock(), key=TopicPartition("t", 0)
    )


class Writers:
    """Three producers, which write, begin another epoch, and end transactions."""

    def __init__(self) -> None:
        self.log = open_log(MemoryDisk())
        self.written: list[bytearray] = []
        self._epochs = {3: 0, 4: 0, 5: 0}
        self._sequences = {3: 0, 4: 0, 5: 0}

    def write(self, producer_id: int, kind: str) -> None:
        epoch, is_open = self._epochs[producer_id], self.log.producers.is_open
        if kind == "epoch" and not is_open(producer_id, epoch):
            self._epochs[producer_id], self._sequences[producer_id] = epoch + 1, 0
            return
        if kind == "marker":
            batch = end_marker_batch(
                producer_id, epoch, commit=True, coordinator_epoch=epoch, timestamp_ms=1
            )
        else:
            sequence = self._sequences[producer_id]
            self._sequences[producer_id] = sequence + 2
            batch = make_batch(
                2,
                producer=(producer_id, epoch, sequence),
                is_transactional=kind == "transaction" or is_open(producer_id, epoch),
            )
        batch = bytearray(batch)
        stamp(batch, 0, base_offset=self.log.end_offset, leader_epoch=0)
        self.log.append_as_follower(memoryview(batch))
        self.written.append(batch)


def hand_over(states: ProducerStates, offset: int, most: int) -> HandedProducers:
    handed = HandedProducers(offset, NOW_MS)
    while not handed.add(producers_below(states, offset, handed.after, most)):
        pass
    return handed


KINDS = st.sampled_from(["records", "records", "transaction", "marker", "epoch"])
ACTS = st.lists(st.tuples(st.sampled_from([3, 4, 5]), KINDS), max_size=40)


@settings(max_examples=200, deadline=None)
@given(ACTS, st.data())
def test_a_follower_that_begins_anew_ends_with_all_that_the_batches_told(
    acts: list[tuple[int, str]], data: st.DataObject
) -> None:
    """Whatever the leader's start, whatever is not committed and vanishes again, and after a crash
    of the follower."""
    leader = Writers()
    for act in acts:
        leader.write(*act)
    written = leader.written
    begins = [read_header(batch).base_offset for batch in written]
    start = data.draw(st.sampled_from([*begins, leader.log.end_offset]), label="start")
    committed = data.draw(
        st.sampled_from([b for b in [*begins, leader.log.end_offset] if b >= start]), "committed"
    )
    leader.log.producers.settle(committed)
    handed = hand_over(leader.log.producers, start, data.draw(st.integers(1, 4), label="most"))

    disk = MemoryDisk()
    follower = open_log(disk)
    follower.reset_to(start, handed)
    upto = data.draw(st.sampled_from(["committed", "all"]), label="upto")
    for batch in written:
        header = read_header(batch)
        if start <= header.base_offset and (upto == "all" or header.base_offset < committed):
            follower.append_as_follower(memoryview(bytearray(batch)))
    follower.truncate_to(committed)
    expected = told_by([each for each in written if read_header(each).base_offset < committed])
    assert known(follower.producers) == expected
    if data.draw(st.booleans(), label="crash"):
        follower.sync_now()
        disk.power_loss()
        follower = open_log(disk)
        assert follower.start_offset == start
        again = known(follower.producers)
        assert again.keys() == expected.keys()
        for producer_id, each in expected.items():
            # Nobody asks how a transaction ended that has no record left.
            first = again[producer_id].transaction_first_offset
            assert first == each.transaction_first_offset or each.transaction_first_offset < start
            assert again[producer_id]._replace(transaction_first_offset=0) == each._replace(
                transaction_first_offset=0
            )


def states_of(*producer_ids: int) -> ProducerStates:
    states = ProducerStates()
    for offset, producer_id in enumerate(producer_ids):
        states.update(header_of(make_batch(1, producer=(producer_id, 0, 0))), offset, 1_000)
    return states


def ids_in(part: ProducersPart) -> set[int]:
    return {entry.producer_id for entry in ProducerStates.decode(part.data)}


def test_parts_come_in_the_order_of_ids() -> None:
    states = states_of(9, 2, 7, 4)
    first = producers_below(states, 10, FIRST, 2)
    assert (ids_in(first), first.after) == ({2, 4}, 4)
    second = producers_below(states, 10, first.after, 2)
    assert (ids_in(second), second.after) == ({7, 9}, 9)
    last = producers_below(states, 10, second.after, 2)
    assert (ids_in(last), last.after) == (set(), FIRST)


def test_producers_may_come_and_go_between_two_parts() -> None:
    """A new producer's batch is at the log's start or above. So the follower gets it."""
    states = states_of(2, 4, 7)
    handed = HandedProducers(3, NOW_MS)
    assert not handed.add(producers_below(states, 3, handed.after, 1))
    states.update(header_of(make_batch(1, producer=(5, 0, 0))), 3, 2_000)
    states.expire(1_500, 500)  # all but 5
    assert handed.add(producers_below(states, 3, handed.after, 5))
    assert known(handed.states).keys() == {2}


def test_the_time_of_the_follower_counts() -> None:
    """A leader whose clock is behind must not make the follower forget a producer too early."""
    handed = hand_over(states_of(2), 1, 10)
    handed.states.expire(NOW_MS + 99, 100)
    assert [entry.last_append_ms for entry in handed.states] == [NOW_MS]
    assert [entry.last_append_ms for entry in ProducerStates.decode(handed.snapshot)] == [NOW_MS]


def test_a_damaged_part_is_refused() -> None:
    data = bytearray(producers_below(states_of(2), 1, FIRST, 9).data)
    data[-1] ^= 1
    with pytest.raises(SnapshotError):
        HandedProducers(1, NOW_MS).add(ProducersPart(bytes(data), FIRST))


class StoppedError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("is_power_lost", [True, False])
@pytest.mark.parametrize("syncs", range(9))
def test_a_crash_leaves_the_old_log_or_one_that_knows_the_producers(
    syncs: int, is_power_lost: bool
) -> None:
    """At no moment is there a log that begins at the new start and does not know them."""
    disk = MemoryDisk()
    log = open_log(disk)
    for sequence in range(4):
        batch = make_batch(1, producer=(8, 0, sequence))
        stamp(batch, 0, base_offset=log.end_offset, leader_epoch=0)
        log.append_as_follower(memoryview(batch))
    log.sync_now()
    left, sync_now = syncs, disk.sync_now

    def sync_or_stop(path: str) -> None:
        nonlocal left
        if not left:
            raise StoppedError
        left -= 1
        sync_now(path)

    with mock.patch.object(disk, "sync_now", sync_or_stop), suppress(StoppedError, SteleError):
        log.reset_to(10, hand_over(states_of(2, 4), 10, 1))
    if is_power_lost:
        disk.power_loss()
    again = open_log(disk)
    assert (again.start_offset == 10) == (known(again.producers).keys() == {2, 4})
    assert again.start_offset in (0, 10)
    assert again.start_offset == 10 or syncs < 8
