"""Changes of a log that fail: nothing was changed, or the log is offline until it is recovered."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from stele.ids import TopicPartition
from stele.wire.batch import read_header
from stele.wire.control_records import end_marker_batch
from storage import cutting
from storage.config import LogConfig
from storage.errors import CorruptLogError, StorageError, UnreadableLogError
from storage.log import PartitionLog
from storage.log_transactions import LogTransactions
from storage.opening import open_log
from storage.producer_state import ProducerStates
from storage.txn_index import AbortedTransaction, TxnIndex
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock
from world.disk import ReadFailedError

PATH = "/d/t-0"


def opened(disk: MemoryDisk) -> PartitionLog:
    return open_log(disk, PATH, LogConfig(), HandClock(), key=TopicPartition("t", 0))


def filled(disk: MemoryDisk) -> PartitionLog:
    log = opened(disk)
    for sequence in range(5):
        append(log, make_batch(1, producer=(7, 0, sequence)))
    log.sync_now()
    return log


def abort(log: PartitionLog, producer_id: int) -> None:
    batch = bytearray(
        end_marker_batch(producer_id, 0, commit=False, coordinator_epoch=0, timestamp_ms=1)
    )
    header = read_header(batch)
    log.append_as_leader(batch, header, leader_epoch=0, now_ms=1, check_sequence=False)


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(errno.EMFILE, "no handle")])
@pytest.mark.parametrize("cut", [lambda log: log.truncate_to(3), lambda log: log.reset_to(9)])
def test_a_truncation_that_is_cut_short_takes_the_log_offline(
    monkeypatch: pytest.MonkeyPatch, error: Exception, cut: Callable[[PartitionLog], object]
) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    with monkeypatch.context() as patch:
        patch.setattr(cutting, "drop_snapshots_above", failing(error))
        with pytest.raises(StorageError):
            cut(log)
    assert log.offline is not None
    with pytest.raises(StorageError, match="offline"):
        append(log, make_batch(1))
    again = opened(disk)
    assert append(again, make_batch(1)) == again.end_offset - 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(errno.EMFILE, "no handle")])
def test_an_append_that_is_cut_short_behind_its_bytes_takes_the_log_offline(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    with monkeypatch.context() as patch:
        patch.setattr(ProducerStates, "update", failing(error))
        with pytest.raises(StorageError):
            append(log, make_batch(1, producer=(7, 0, 5)))
    assert log.offline is not None
    assert opened(disk).end_offset == 6  # recovery knows the bytes


def test_an_error_before_the_bytes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(MemoryDisk())
    append(log, make_batch(1, producer=(8, 0, 0), is_transactional=True))
    with monkeypatch.context() as patch:
        patch.setattr(LogTransactions, "announce", failing(RuntimeError("a bug")))
        with pytest.raises(RuntimeError, match="a bug"):
            abort(log, 8)
    assert log.offline is None
    abort(log, 8)
    assert log.transactions.aborted(0, 7) == [AbortedTransaction(8, 5, 6, 7)]


def test_an_entry_is_taken_back_if_its_marker_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled(MemoryDisk())
    append(log, make_batch(1, producer=(8, 0, 0), is_transactional=True))
    segment = type(log.segments.active)
    with monkeypatch.context() as patch:
        patch.setattr(segment, "write", failing(RuntimeError("a bug")))
        with pytest.raises(RuntimeError, match="a bug"):
            abort(log, 8)
    assert log.transactions.aborted(0, log.end_offset) == []
    assert log.offline is None


def two_open_and_an_index(disk: MemoryDisk) -> tuple[PartitionLog, TxnIndex]:
    """Of two transactions one is aborted, and its entry is only in the file."""
    log = filled(disk)
    for producer_id in (8, 9):
        append(log, make_batch(1, producer=(producer_id, 0, 0), is_transactional=True))
    abort(log, 8)
    index = log.segments.active.txn_index
    index.unload()
    return log, index


def test_a_transaction_index_that_is_damaged_or_cannot_be_opened_refuses_the_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    log, index = two_open_and_an_index(disk)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", failing(ReadFailedError(errno.EIO, "bad sector")))
        with pytest.raises(UnreadableLogError):
            abort(log, 9)
    disk.inodes[index.path].data += b"?"
    with pytest.raises(CorruptLogError):
        abort(log, 9)
    assert log.end_offset == 8
    assert log.offline is None


def test_a_marker_needs_no_look_at_the_entries_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read 600,000 entries for one more would take a turn of a second."""
    disk = MemoryDisk()
    log, _ = two_open_and_an_index(disk)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "read_file", failing(ReadFailedError(errno.EIO, "bad sector")))
        abort(log, 9)
    assert log.end_offset == 9
    found = log.transactions.aborted(0, log.end_offset)
    assert isinstance(found, list)
    assert [each.producer_id for each in found] == [8, 9]
