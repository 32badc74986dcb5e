"""Compaction of logs with transactions: what a reader finds, and what the log knows, afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.wire.batch import BatchBuilder, BatchHeader, Record, decode, read_header
from stele.wire.control_records import decode_end_marker, end_marker_batch
from storage.cold_range import ColdRange
from storage.log import PartitionLog
from storage.producer_state import NEVER
from tests.support.compaction import DIRECTORY, compact, last_values, opened, roll
from tests.support.storage import MemoryDisk

RETENTION_MS = 1000  # of tombstones and markers, by the configuration of the logs here
START_MS = 10_000
PRODUCERS = (1, 2, 3)


def append(log: PartitionLog, batch: bytearray) -> int:
    header = read_header(batch)
    result = log.append_as_leader(
        batch, header, leader_epoch=0, now_ms=START_MS, check_sequence=False
    )
    return result.base_offset


def write(
    log: PartitionLog,
    key: bytes,
    value: bytes | None,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = True,
) -> int:
    builder = BatchBuilder()
    builder.append(key, value, timestamp_ms=START_MS)
    producer_id, epoch, sequence = producer
    return append(
        log,
        builder.build(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional and producer_id >= 0,
        ),
    )


def end(log: PartitionLog, producer_id: int, epoch: int, *, commit: bool) -> int:
    batch = end_marker_batch(
        producer_id, epoch, commit=commit, coordinator_epoch=0, timestamp_ms=START_MS
    )
    return append(log, batch)


@dataclass(frozen=True)
class Read:
    """What a reader of committed records finds from an offset on: the records, as Kafka's consumer
    filters them by the aborted transactions of a fetch."""

    records: list[Record]
    stable: int


def read_committed(log: PartitionLog, offset: int = 0) -> Read:
    stable = min(log.transactions.first_open_offset, log.end_offset)
    found: list[Record] = []
    if offset >= stable:
        return Read(found, stable)
    aborted = log.transactions.aborted(offset, stable)
    assert not isinstance(aborted, ColdRange)
    ahead = sorted(aborted, key=lambda each: each.first_offset)
    now_aborted: set[int] = set()
    for header, batch in log.batches_now(offset):
        if header.base_offset >= stable:
            break
        while ahead and ahead[0].first_offset <= header.last_offset:
            now_aborted.add(ahead.pop(0).producer_id)
        if header.is_control:
            for record in decode(batch):
                marker = decode_end_marker(record)
                if marker is not None and not marker.commit:
                    now_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in now_aborted):
            found += [each for each in decode(batch) if each.offset >= offset]
    return Read(found, stable)


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [header for header, _ in log.batches_now(log.start_offset)]


def markers(log: PartitionLog) -> list[int]:
    return [header.base_offset for header in headers(log) if header.is_control]


def aborted(log: PartitionLog) -> list[tuple[int, int, int]]:
    found = log.transactions.aborted(log.start_offset, log.end_offset)
    assert not isinstance(found, ColdRange)
    return [(each.producer_id, each.first_offset, each.last_offset) for each in found]


# --------------------------------------------------------------------------- one by one


def test_aborted_records_go_at_once_and_hide_no_earlier_value() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, b"a", b"old")
    write(log, b"a", b"aborted", producer=(1, 0, 0))
    end(log, 1, 1, commit=False)
    write(log, b"b", b"last", producer=(1, 2, 0))  # the batch above is not its last one any more
    end(log, 1, 3, commit=True)
    roll(log)
    compact(log, disk)
    assert last_values(read_committed(log).records)[b"a"] == b"old"
    assert [each.base_offset for each in headers(log)][:2] == [0, 2]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_long_after_its_transaction(commit: bool) -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, b"a", b"1", producer=(1, 0, 0))
    first = end(log, 1, 1, commit=commit)
    write(log, b"a", b"2")
    end(log, 1, 2, commit=True)  # what is known of the producer after this is its epoch
    now_ms, found, dropped = 20_000, [], []
    for passed_ms in (0, 0, RETENTION_MS - 1, 1, 0):
        now_ms += passed_ms
        roll(log)
        compact(log, disk, now_ms=now_ms)
        found.append((first in markers(log), aborted(log)))
        dropped.append(log.dropped_end)
    assert dropped == [0, 0, 0, first + 1, first + 1]
    gone: list[tuple[int, int, int]] = []
    index = gone if commit else [(1, 0, first)]
    assert found == [
        (True, index),  # the records went in this round
        (True, gone),  # the horizon begins: there were no records
        (True, gone),
        (False, gone),
        (False, gone),
    ]
    assert log.producers.get(1) is not None
    assert 3 in markers(log)  # the last one of the producer stays


@pytest.mark.parametrize("plain_first", [True, False])
def test_segments_with_and_without_an_index_become_one(plain_first: bool) -> None:
    disk = MemoryDisk()
    log = opened(disk)
    for is_plain in (plain_first, not plain_first):
        write(log, b"a", b"1")
        if not is_plain:
            first = write(log, b"b", b"2", producer=(1, 0, 0))
            last = end(log, 1, 1, commit=False)
        roll(log)
    indexed = [name for name in disk.list(DIRECTORY) if name.endswith(".txnindex")]
    compact(log, disk)
    assert log.segment_bases[0] == 0
    assert len(log.segment_bases) == 2
    assert aborted(log) == [(1, first, last)]
    assert [f"{0:020d}.txnindex"] == [
        name for name in disk.list(DIRECTORY) if name.endswith(".txnindex")
    ]
    assert (indexed == [f"{0:020d}.txnindex"]) is not plain_first


def test_open_transactions_and_what_follows_are_not_compacted() -> None:
    """By the last stable offset, which the caller passes as the limit."""
    disk = MemoryDisk()
    log = opened(disk)
    write(log, b"a", b"1")
    roll(log)
    write(log, b"a", b"2", producer=(1, 0, 0))
    roll(log)
    before = headers(log)
    compact(log, disk, limit=log.transactions.first_open_offset)
    assert headers(log) == before


def test_a_snapshot_of_an_open_transaction_that_is_compacted_since_holds_nothing_back() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, b"a", b"1", producer=(1, 0, 0))
    roll(log)  # the snapshot here knows an open transaction
    snapshot = f"{DIRECTORY}/{log.segment_bases[-1]:020d}.snapshot"
    kept = disk.read_file(snapshot)
    assert log.producers.first_open_offset == 0
    end(log, 1, 1, commit=True)
    write(log, b"a", b"2", producer=(2, 0, 0))
    end(log, 2, 1, commit=True)
    for now_ms in (20_000, 20_000, 20_000 + RETENTION_MS):
        end(log, 1, 1, commit=True)
        roll(log)
        compact(log, disk, now_ms=now_ms)
    assert headers(log)[0].base_offset > 0
    log.sync_now()
    log.close()
    for name in disk.list(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    disk.open(snapshot, create=True).append([kept])
    log = opened(disk, recovery_point=log.end_offset)
    assert log.producers.first_open_offset == NEVER


# --------------------------------------------------------------------------- the twin

Step = tuple[str, int, int]  # what, producer, key
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(PRODUCERS), st.integers(0, 3)),
        st.tuples(st.just("plain"), st.sampled_from(PRODUCERS), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from(PRODUCERS), st.integers(0, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from(PRODUCERS), st.just(0)),
    ),
    max_size=14,
)


class Twin:
    """Writes to the log and remembers what is committed, without ever removing anything."""

    def __init__(self) -> None:
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, list[Record]] = {}
        self.written: list[Record] = []
        self.committed: list[Record] = []

    def apply(self, log: PartitionLog, steps: Iterable[Step], bumps: bool) -> None:
        for what, producer, number in steps:
            key, value = b"k%d" % number, b"v%d" % log.end_offset
            if what == "plain":
                self.keep(log, write(log, key, value))
            elif what in ("commit", "abort"):
                self.epochs[producer] += bumps
                self.sequences[producer] *= not bumps
                end(log, producer, self.epochs[producer], commit=what == "commit")
                records = self.open.pop(producer, [])
                self.committed += records if what == "commit" else []
            else:
                before = (producer, self.epochs[producer], self.sequences[producer])
                offset = write(log, key, None if what == "delete" else value, producer=before)
                self.sequences[producer] += 1
                self.open.setdefault(producer, []).append(self._record(log, offset))

    def keep(self, log: PartitionLog, offset: int) -> None:
        self.committed.append(self._record(log, offset))

    def _record(self, log: PartitionLog, offset: int) -> Record:
        record = next(each for _, b in log.batches_now(offset) for each in decode(b))
        self.written.append(record)
        return record

    @property
    def stable(self) -> int:
        return min([each[0].offset for each in self.open.values()], default=NEVER)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(STEPS, st.booleans(), st.sampled_from([0, 400, 1200]), st.sampled_from("-krp")),
        min_size=1,
        max_size=5,
    )
)
def test_readers_find_what_is_committed_and_the_log_knows_what_it_knew(
    rounds: list[tuple[list[Step], bool, int, str]],
) -> None:
    disk = MemoryDisk()
    log, twin = opened(disk), Twin()
    now_ms, clean_end = 10_000, 0
    seen_aborted: set[tuple[int, int, int]] = set()
    for steps, bumps, passed_ms, ending in rounds:
        twin.apply(log, steps, bumps)
        roll(log)
        twin.committed.append(
            next(e for _, b in log.batches_now(log.end_offset - 1) for e in decode(b))
        )
        seen_aborted |= set(aborted(log))
        known = {each.producer_id: (each.epoch, each.last_sequence) for each in log.producers}
        now_ms += passed_ms
        limit = min(log.end_offset, log.transactions.first_open_offset)
        finished = compact(log, disk, clean_end=clean_end, limit=limit, now_ms=now_ms)
        if finished is not None:
            clean_end = finished.clean_end
        check(log, twin, known, seen_aborted)
        clean = [each.key for each in read_committed(log).records if each.offset < clean_end]
        assert len(set(clean)) == len(clean)
        if ending != "-":
            log.sync_now()
            end_offset = log.end_offset
            if ending == "p":
                disk.power_loss()
            recovery_point = end_offset if ending == "r" else 0
            log.close()
            log = opened(disk, recovery_point=recovery_point)
            check(log, twin, known, seen_aborted)


def check(
    log: PartitionLog,
    twin: Twin,
    known: dict[int, tuple[int, int]],
    seen_aborted: set[tuple[int, int, int]],
) -> None:
    open_ = {producer: records[0].offset for producer, records in twin.open.items()}
    assert dict(log.producers.open_transactions()) == open_
    committed = sorted(each for each in twin.committed if each.offset < twin.stable)
    read = read_committed(log)
    assert read.stable == min(twin.stable, log.end_offset)
    assert set(read.records) <= set(committed)
    assert last_values(read.records) == last_values(committed)
    for offset in range(0, read.stable, 3):  # from the middle of transactions, too
        later = read_committed(log, offset).records
        assert later == [each for each in read.records if each.offset >= offset]
    for producer_id, first, last in aborted(log):
        assert any((producer_id, last) == (p, m) and first >= f for p, f, m in seen_aborted)
    for entry in log.producers:
        assert known[entry.producer_id] == (entry.epoch, entry.last_sequence)
    assert {each.producer_id for each in log.producers} == set(known)
