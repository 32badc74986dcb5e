"""The transactions of a log and of its producers, one rule at a time."""

from __future__ import annotations

import pytest

from stele.ids import TopicPartition
from stele.wire.batch import HEADER_SIZE, read_header
from stele.wire.control_records import EndMarker, end_marker_batch
from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.opening import open_log
from storage.producer_recovery import rebuild_producers
from storage.producer_state import NEVER, EndedTransaction
from storage.segment import Segment
from storage.txn_index import ENTRY_SIZE, AbortedTransaction, TxnIndex, encode_aborted
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk
from tests.support.timing import HandClock

DIRECTORY = "/d/t-0"
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)


def opened(
    disk: MemoryDisk,
    *,
    start: int = 0,
    recovery_point: int = 0,
    high_watermark: int = 0,
    clean_shutdown: bool = False,
) -> PartitionLog:
    return open_log(
        disk,
        DIRECTORY,
        CONFIG,
        HandClock(),
        key=TopicPartition("t", 0),
        start_offset=start,
        recovery_point=recovery_point,
        high_watermark_checkpoint=high_watermark,
        clean_shutdown=clean_shutdown,
    )


def append(log: PartitionLog, batch: bytearray) -> None:
    log.append_as_leader(batch, read_header(batch), leader_epoch=0, now_ms=0, check_sequence=False)


def write(log: PartitionLog, producer_id: int, count: int = 1) -> None:
    append(log, make_batch(count, producer=(producer_id, 0, -1), is_transactional=True))


def end(log: PartitionLog, producer_id: int, *, commit: bool = False) -> None:
    append(
        log,
        end_marker_batch(producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=0),
    )


def roll(log: PartitionLog) -> None:
    segments = len(log.segment_bases)
    while len(log.segment_bases) == segments:
        append(log, make_batch(1, size=80))


def three_aborted() -> tuple[MemoryDisk, PartitionLog, list[AbortedTransaction]]:
    """A log with an aborted transaction in each of its three segments."""
    disk = MemoryDisk()
    log = opened(disk)
    for number in range(3):
        write(log, 7)
        end(log, 7)
        if number < 2:
            roll(log)
    found = log.transactions.aborted(0, log.end_offset)
    assert not isinstance(found, ColdRange)
    assert len(found) == len(log.segment_bases) == 3
    return disk, log, found


# ------------------------------------------------------------------------------- aborted


def test_an_entry_tells_the_last_stable_offset_at_its_marker() -> None:
    log = opened(MemoryDisk())
    write(log, 7)
    write(log, 8)
    write(log, 9)
    for producer_id in (8, 7, 9):
        end(log, producer_id)
    found = log.transactions.aborted(0, log.end_offset)
    assert found == [
        AbortedTransaction(8, 1, 3, 0),
        AbortedTransaction(7, 0, 4, 2),
        AbortedTransaction(9, 2, 5, 6),
    ]


def test_a_transaction_that_begins_at_the_end_of_the_range_is_none_of_it() -> None:
    log = opened(MemoryDisk())
    for producer_id in (7, 8):
        write(log, producer_id)
    for producer_id in (7, 8):
        end(log, producer_id)
    assert log.transactions.aborted(0, 1) == [AbortedTransaction(7, 0, 2, 1)]


def test_the_first_aborted_one_that_begins_at_the_end_of_the_range_is_none_of_it() -> None:
    log = opened(MemoryDisk())
    append(log, make_batch(3))
    write(log, 7)
    end(log, 7)
    assert log.transactions.aborted(0, 3) == []
    assert log.transactions.aborted(0, 4) == [AbortedTransaction(7, 3, 4, 5)]


def test_only_the_indexes_of_the_range_are_read() -> None:
    disk, log, (_, second, _) = three_aborted()
    for at in (0, 2):
        index = log.segments.at(at).txn_index
        index.unload()
        disk.open(index.path).append([b"no entry"])
    assert log.transactions.aborted(second.first_offset, second.last_stable_offset) == [second]


def test_an_index_that_is_not_in_memory_is_warmed_first() -> None:
    disk, log, (first, *_) = three_aborted()
    index = log.segments.at(0).txn_index
    index.unload()
    disk.cold = True
    cold = log.transactions.aborted(first.first_offset, first.last_stable_offset)
    assert cold == ColdRange(index.path, 0, ENTRY_SIZE)


def test_four_indexes_stay_in_memory() -> None:
    disk, log, _ = three_aborted()
    for _ in range(3):
        roll(log)
        write(log, 7)
        end(log, 7)
    found = log.transactions.aborted(0, log.end_offset)
    assert not isinstance(found, ColdRange)
    assert len(found) == 6
    disk.cold = True
    indexes = [segment.txn_index.entries(disk) for segment in log.segments]
    assert [isinstance(each, ColdRange) for each in indexes] == [True] * 2 + [False] * 4


def test_the_index_of_a_segment_that_is_gone_is_forgotten() -> None:
    _, log, found = three_aborted()
    log.advance_start_offset(log.segment_bases[1])
    log.remove_dead_segments()
    assert log.transactions.aborted(log.start_offset, log.end_offset) == found[1:]
    assert log.transactions.has_aborted
    log.advance_start_offset(log.segment_bases[-1])
    log.remove_dead_segments()
    assert log.transactions.aborted(log.start_offset, log.end_offset) == found[2:]


def test_an_index_that_has_the_entries_is_not_written_again() -> None:
    disk, index = MemoryDisk(), TxnIndex(f"{DIRECTORY}/0.txnindex")
    disk.make_directory("/d")
    disk.make_directory(DIRECTORY)
    assert not index.replace_behind(disk, [], [])
    assert not disk.exists(index.path)
    entry = AbortedTransaction(7, 0, 1, 2)
    assert index.replace_behind(disk, [], [entry])
    assert not index.replace_behind(disk, [], [entry])
    assert not index.replace_behind(disk, [entry], [])
    assert disk.read_file(index.path) == encode_aborted([entry])


# ------------------------------------------------------------------------------- recovery


def test_the_last_marker_is_reported() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    assert log.transactions.last_marker_offset == -1
    ended = []
    for number in range(2):
        write(log, 7)
        end(log, 7, commit=True)
        ended.append(EndedTransaction(7, 2 * number, 2 * number + 1, commit=True))
        assert log.transactions.last_marker_offset == 2 * number + 1
    log.close()
    for high_watermark, undecided in ((0, ended), (1, ended), (2, ended[1:]), (4, [])):
        log = opened(disk, high_watermark=high_watermark)
        assert log.transactions.undecided == undecided
        assert log.transactions.last_marker_offset == (3 if undecided else -1)
        log.close()


def test_a_damaged_index_below_the_recovery_point_is_left_to_its_readers() -> None:
    disk, log, _ = three_aborted()
    log.sync_now()
    path = log.segments.at(0).txn_index.path
    recovery_point = log.segment_bases[1]
    log.close()
    disk.open(path).append([b"no entry"])
    damaged = disk.read_file(path)
    log = opened(disk, recovery_point=recovery_point, high_watermark=recovery_point)
    assert disk.read_file(path) == damaged
    log.close()


@pytest.mark.parametrize("recovery_point", [1, 2, 3])
def test_entries_above_the_recovery_point_are_made_anew(recovery_point: int) -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    end(log, 7)
    write(log, 8)
    end(log, 8)
    expected = [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(8, 2, 3, 4)]
    path = log.segments.active.txn_index.path
    log.close()
    for kept in (0, 1):
        if kept * 2 < recovery_point:
            continue
        disk.replace_file_now(path, encode_aborted(expected[:kept]))
        log = opened(disk, recovery_point=recovery_point, high_watermark=recovery_point)
        assert log.transactions.aborted(0, 4) == expected
        log.close()


def test_an_open_transaction_with_one_record_left_is_known() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    roll(log)
    base = log.segment_bases[-1]
    # The next record of the producer is the first one of the segment.
    log.truncate_to(base)
    append(log, make_batch(1, producer=(7, 0, 0), is_transactional=True))
    log.sync_now()
    log.advance_start_offset(base)
    log.remove_dead_segments()
    log.close()
    log = opened(disk, start=base, recovery_point=base, high_watermark=base)
    assert log.producers.first_open_offset < NEVER
    log.close()


# ------------------------------------------------------------------------------- recovery


def end_after(log: PartitionLog) -> int:
    """Close the log as a kill would, with all of it on disk. Returns where it ends."""
    end_offset = log.end_offset
    log.sync_now()
    log.close()
    return end_offset


def cut_out(disk: MemoryDisk, path: str, offsets: range) -> None:
    """Remove the batches that begin at these offsets, as a compaction does; the indexes go, too."""
    data, kept = disk.read_file(path), bytearray()
    while data:
        header = read_header(data)
        if header.base_offset not in offsets:
            kept += data[: header.size_bytes]
        data = data[header.size_bytes :]
    disk.replace_file_now(path, bytes(kept))
    for suffix in (".index", ".timeindex"):
        disk.remove(path.removesuffix(".log") + suffix)


def with_an_open_one(*, goes_on: bool = True) -> tuple[MemoryDisk, str, int]:
    """A log whose newest snapshot says that producer 7 has an open transaction, which begins at
    offset 1. ``goes_on``: its next batch follows. The disk, its first segment and its end."""
    disk = MemoryDisk()
    log = opened(disk)
    append(log, make_batch(1))
    write(log, 7)
    if goes_on:
        write(log, 7)
    else:
        append(log, make_batch(1))
    roll(log)
    return disk, log.segments.at(0).path, end_after(log)


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_open_transaction_of_a_snapshot_is_believed_if_its_first_batch_is_there(
    goes_on: bool,
) -> None:
    disk, _, end_offset = with_an_open_one(goes_on=goes_on)
    log = opened(disk, recovery_point=end_offset, high_watermark=end_offset)
    assert list(log.producers.open_transactions()) == [(7, 1)]
    log.close()


@pytest.mark.parametrize(
    ("goes_on", "gone"), [(True, range(1, 2)), (False, range(1, 2)), (True, range(1, 99))]
)
def test_an_open_transaction_of_a_snapshot_whose_first_batch_is_gone_had_ended(
    goes_on: bool, gone: range
) -> None:
    disk, path, end_offset = with_an_open_one(goes_on=goes_on)
    cut_out(disk, path, gone)
    log = opened(disk, recovery_point=end_offset, high_watermark=end_offset)
    assert list(log.producers.open_transactions()) == []
    log.close()


def test_an_open_transaction_whose_last_record_begins_the_log_is_known() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    roll(log)
    base = log.segment_bases[-1]
    log.truncate_to(base)
    append(log, make_batch(1, producer=(7, 0, 0), is_transactional=True))
    roll(log)
    log.advance_start_offset(base)
    log.remove_dead_segments()
    end_offset = end_after(log)
    log = opened(disk, start=base, recovery_point=end_offset, high_watermark=end_offset)
    assert log.producers.first_open_offset < NEVER
    log.close()


def test_a_transaction_whose_first_record_is_deleted_goes_on_behind_the_snapshot() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    while len(log.segment_bases) == 1:
        append(log, make_batch())
    (_, base) = log.segment_bases
    append(log, make_batch())
    write(log, 7)
    log.sync_now()
    log.advance_start_offset(base)
    log.remove_dead_segments()
    log.close()
    log = opened(disk, start=base, recovery_point=base, high_watermark=base)
    assert log.producers.first_open_offset == 0
    end(log, 7)
    assert log.producers.first_open_offset == NEVER
    log.close()


def test_a_file_that_gets_shorter_meanwhile_is_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path, end_offset = with_an_open_one()
    log = opened(disk, recovery_point=end_offset, high_watermark=end_offset)
    nowhere = ColdRange(path, 81, 10)
    monkeypatch.setattr(Segment, "locate", lambda segment, offset, *, wait: nowhere)
    work = rebuild_producers(disk, DIRECTORY, log.segments.all(), end_offset, 0)
    with pytest.raises(CorruptLogError, match=r"at byte 81 .*ends inside a batch"):
        next(work)
    log.close()


def test_a_damaged_marker_below_the_recovery_point_makes_the_log_corrupt() -> None:
    """Whatever bit of its record has changed: a commit must not become an abort."""
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    marker = end_marker_batch(7, 0, commit=True, coordinator_epoch=1, timestamp_ms=0)
    path, position = log.segments.active.path, log.segments.active.size
    append(log, marker)
    whole = disk.read_file(path)
    for bit in range(8 * (position + HEADER_SIZE), 8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        disk.replace_file_now(path, bytes(damaged))
        with pytest.raises(CorruptLogError, match=rf"byte {position} \(offset 1\)"):
            opened(disk, recovery_point=2, high_watermark=2)
    disk.replace_file_now(path, whole)
    assert opened(disk, recovery_point=2, high_watermark=2).end_offset == 2


def test_an_index_that_a_killed_process_has_not_synced_outlives_a_power_loss() -> None:
    """The next process finds the entry, and says by its recovery point that it is on disk."""
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    end(log, 7)
    entries = log.transactions.aborted(0, 2)
    again = opened(disk)
    assert again.durable_offset == 2
    disk.power_loss()
    assert opened(disk, recovery_point=2, high_watermark=2).transactions.aborted(0, 2) == entries
    assert len(entries) == 1


def test_a_committed_transaction_above_the_recovery_point_is_in_no_index() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    end(log, 7, commit=True)
    write(log, 7)
    end(log, 7)
    end_after(log)
    log = opened(disk)
    assert log.transactions.aborted(0, 4) == [AbortedTransaction(7, 2, 3, 4)]
    log.close()


@pytest.mark.parametrize("known", [0, 1, 2])
def test_indexes_of_several_segments_are_made_anew(known: int) -> None:
    disk, log, expected = three_aborted()
    paths = [log.segments.at(at).txn_index.path for at in range(3)]
    recovery_point = log.segment_bases[known]
    end_offset = end_after(log)
    for path in paths[known:]:
        disk.remove(path)
    log = opened(disk, recovery_point=recovery_point)
    assert log.transactions.aborted(0, end_offset) == expected
    log.close()


def test_a_torn_entry_of_the_active_segment_is_removed() -> None:
    disk, log, _ = three_aborted()
    path = log.segments.active.txn_index.path
    whole = disk.read_file(path)
    end_offset = end_after(log)
    disk.open(path).append([b"torn"])
    opened(disk, recovery_point=end_offset, high_watermark=end_offset).close()
    assert disk.read_file(path) == whole


def test_a_marker_that_begins_a_segment_is_in_its_index_alone() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    room = CONFIG.segment_bytes - log.segments.active.size
    append(log, make_batch(1, size=room - len(make_batch(1, size=0)) - 10))
    end(log, 7)
    assert log.segment_bases == [0, 2]
    paths = [log.segments.at(at).txn_index.path for at in range(2)]
    end_after(log)
    disk.remove(paths[1])
    log = opened(disk)
    assert log.transactions.aborted(0, 3) == [AbortedTransaction(7, 0, 2, 3)]
    assert not disk.exists(paths[0])
    log.close()


def test_a_marker_above_the_high_watermark_is_known_to_be_undecided() -> None:
    """Though a snapshot from above the marker is there, and all is on disk."""
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    end(log, 7, commit=True)
    roll(log)
    end_offset = end_after(log)
    log = opened(disk, recovery_point=end_offset, high_watermark=1)
    assert [each.marker_offset for each in log.transactions.undecided] == [1]
    log.close()
    log = opened(disk, recovery_point=end_offset, high_watermark=end_offset)
    assert log.transactions.undecided == []
    log.close()


def test_undecided_transactions_are_known_though_a_clean_shutdowns_recovery_point_is_lost() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    write(log, 7)
    end(log, 7, commit=True)
    log.prepare_clean_shutdown()
    end_after(log)
    log = opened(disk, recovery_point=0, high_watermark=1, clean_shutdown=True)
    assert [each.marker_offset for each in log.transactions.undecided] == [1]
    log.close()


def test_a_transaction_is_open_again_without_its_marker_though_its_producer_has_expired() -> None:
    log = opened(MemoryDisk())
    write(log, 7)
    end(log, 7, commit=True)
    log.ask_high_watermark = lambda: 2
    list(log.expiring_producers(NEVER))
    assert len(log.producers) == 0
    log.truncate_to(1)
    assert log.transactions.first_open_offset == 0


def test_a_control_record_that_is_no_end_marker_announces_nothing() -> None:
    log = opened(MemoryDisk())
    write(log, 7)
    assert not log.transactions.announce(7, None, 1)
    assert log.transactions.announce(7, EndMarker(False, 0), 1)
