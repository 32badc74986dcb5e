"""Abort markers on a disk that is full at any byte, and has room again later."""

from __future__ import annotations

import pytest

from stele.ids import TopicPartition
from stele.wire.batch import read_header, stamp
from stele.wire.control_records import end_marker_batch
from storage.config import LogConfig
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.opening import open_log
from storage.txn_index import AbortedTransaction
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock

PATH = "/d/t-0"
ROOM_BYTES = 130  # more than an index entry and a marker


def opened(disk: MemoryDisk, *, clean: bool = False) -> PartitionLog:
    key = TopicPartition("t", 0)
    return open_log(disk, PATH, LogConfig(), HandClock(), key=key, clean_shutdown=clean)


def marker_of(producer_id: int, *, commit: bool = False) -> bytearray:
    return bytearray(
        end_marker_batch(producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=1)
    )


def end(log: PartitionLog, batch: bytearray, *, as_leader: bool) -> None:
    if as_leader:
        header = read_header(batch)
        log.append_as_leader(batch, header, leader_epoch=0, now_ms=1, check_sequence=False)
        return
    stamp(batch, 0, base_offset=log.end_offset, leader_epoch=0)
    log.append_as_follower(batch)


@pytest.mark.parametrize("as_leader", [True, False])
@pytest.mark.parametrize("earlier", [0, 1])
def test_a_refused_abort_marker_changes_nothing(*, as_leader: bool, earlier: int) -> None:
    refused = 0
    for room_bytes in range(ROOM_BYTES):
        disk = MemoryDisk()
        log = opened(disk)
        for producer_id in range(earlier + 2):
            append(log, make_batch(1, producer=(producer_id, 0, 0), is_transactional=True))
        for producer_id in range(earlier):
            end(log, marker_of(producer_id), as_leader=as_leader)
        before = log.end_offset
        known = log.transactions.aborted(0, before)
        disk.capacity = disk.used() + room_bytes
        try:
            end(log, marker_of(earlier), as_leader=as_leader)
        except StorageError:
            refused += 1
            assert log.end_offset == before
            assert log.transactions.aborted(0, before) == known
            assert log.producers.is_open(earlier, 0)
            disk.capacity = None
            if room_bytes % 2:  # another process finds the same
                log.prepare_clean_shutdown()
                log.sync_now()
                log.close()
                log = opened(disk, clean=True)
                assert log.transactions.aborted(0, before) == known
            end(log, marker_of(earlier), as_leader=as_leader)
        disk.capacity = None
        assert log.offline is None
        entry = AbortedTransaction(earlier, earlier, before, earlier + 1)
        assert log.transactions.aborted(0, before) == [*known, entry]
        assert append(log, make_batch(1)) == before + 1
        log.sync_now()
        assert opened(disk).transactions.aborted(0, before) == [*known, entry]
    assert 60 < refused < ROOM_BYTES


def test_abort_markers_within_a_run_are_indexed_in_their_order() -> None:
    batches = [
        make_batch(1, producer=(1, 0, 0), is_transactional=True),
        make_batch(1, producer=(2, 0, 0), is_transactional=True),
        marker_of(1),
        make_batch(1, producer=(1, 0, 1), is_transactional=True),
        marker_of(2),
        marker_of(1, commit=True),
        make_batch(1),
    ]
    for offset, batch in enumerate(batches):
        stamp(batch, 0, base_offset=offset, leader_epoch=0)
    log = opened(MemoryDisk())
    log.append_as_follower(b"".join(batches))
    assert log.end_offset == len(batches)
    assert log.transactions.aborted(0, len(batches)) == [
        AbortedTransaction(1, 0, 2, 1),
        AbortedTransaction(2, 1, 4, 3),
    ]
    assert log.producers.open_transactions() == []


def test_a_full_disk_does_not_stop_a_truncation_of_the_index() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    for producer_id in range(3):
        append(log, make_batch(1, producer=(producer_id, 0, 0), is_transactional=True))
        end(log, marker_of(producer_id), as_leader=True)
    log.sync_now()
    disk.capacity = 0
    log.truncate_to(4)
    assert log.offline is None
    assert log.transactions.aborted(0, 4) == [
        AbortedTransaction(0, 0, 1, 2),
        AbortedTransaction(1, 2, 3, 4),
    ]
