"""What an append checks, what a roll syncs, and what a changed configuration applies to."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from stele.wire.batch import read_header
from stele.wire.control_records import end_marker_batch
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.counting import CountingDisk
from tests.support.partition_log import SMALL, open_log
from tests.support.storage import MemoryDisk, append

RELAXED = LogConfig(flush_messages=1000)


def append_unchecked(log: PartitionLog, batch: bytearray) -> int:
    result = log.append_as_leader(
        batch, read_header(batch), leader_epoch=0, now_ms=0, check_sequence=False
    )
    return result.base_offset


# ------------------------------------------------------------------------------- producers


@pytest.mark.parametrize("producer_id", [0, 7])
def test_a_producer_is_known_whatever_its_id(producer_id: int) -> None:
    log = open_log(MemoryDisk())
    for sequence in (0, 1):
        append(log, make_batch(producer=(producer_id, 0, sequence)))
    again = make_batch(producer=(producer_id, 0, 0))
    result = log.append_as_leader(again, read_header(again), leader_epoch=0, now_ms=0)
    assert (result.base_offset, result.duplicate) == (0, True)
    assert log.end_offset == 2


def test_a_broker_appends_its_own_batches_unchecked() -> None:
    """A group's offsets in a transaction have no sequences."""
    log = open_log(MemoryDisk())
    for sequence in (5, 5, -1):
        append_unchecked(log, make_batch(producer=(7, 0, sequence)))
    assert log.end_offset == 3


def test_a_control_batch_of_no_producer_ends_nothing() -> None:
    """Its record is no end marker: the voters of a quorum write such batches."""
    log = open_log(MemoryDisk())
    append(log, make_batch(producer=(7, 0, 0), is_transactional=True))
    batch = bytearray(end_marker_batch(7, 0, commit=True, coordinator_epoch=1, timestamp_ms=0))
    header = read_header(batch)._replace(producer_id=-1)
    log.append_as_leader(batch, header, leader_epoch=0, now_ms=0, check_sequence=False)
    assert log.end_offset == 2
    assert log.transactions.first_open_offset == 0


def test_a_batch_whose_crc_the_caller_has_checked_is_not_checked_again() -> None:
    log = open_log(MemoryDisk())
    batch = make_batch()
    batch[-1] ^= 1
    log.append_as_follower(batch, verify_crc=False)
    assert log.end_offset == 1


# ------------------------------------------------------------------------------- configuration


def test_a_followers_segments_end_as_the_newest_configuration_says() -> None:
    log = open_log(MemoryDisk(), LogConfig())
    batches = [make_batch(base_offset=offset) for offset in range(4)]
    log.append_as_follower(batches[0])
    log.configure(LogConfig(segment_bytes=1))
    log.append_as_follower(batches[1] + batches[2])
    log.configure(LogConfig())
    log.append_as_follower(batches[3])
    assert log.segment_bases == [0, 1, 2]


def test_a_configuration_asks_for_a_sync_only_if_it_needs_one() -> None:
    """A strict flush needs it where a relaxed one has left bytes in memory."""
    log = open_log(MemoryDisk(), RELAXED)
    log.sync_now()
    log.configure(LogConfig())
    assert not log.durability.is_dirty
    log.configure(RELAXED)
    append(log, make_batch())
    log.configure(replace(RELAXED, segment_bytes=1 << 20))
    assert not log.durability.is_dirty
    log.configure(LogConfig())
    assert log.durability.is_dirty


# ------------------------------------------------------------------------------- rolls


@pytest.mark.parametrize(("config", "synced"), [(SMALL, True), (RELAXED, False)])
def test_a_segment_that_is_on_disk_is_not_synced_when_it_ends(
    config: LogConfig, synced: bool
) -> None:
    """The event loop waits for that sync. A relaxed flush needs none."""
    disk = CountingDisk()
    log = open_log(disk, replace(config, segment_bytes=1000))
    log.sync_now()
    while log.segments.active.size + len(make_batch()) <= 1000:
        append(log, make_batch())
    if synced:
        log.sync_now()
    work = disk.fresh()
    append(log, make_batch())
    assert len(log.segment_bases) == 2
    assert work.calls["sync of one path"] == 0


def test_a_segment_that_is_not_on_disk_is_synced_before_the_next_one_begins() -> None:
    disk = CountingDisk()
    log = open_log(disk)
    log.sync_now()
    work = disk.fresh()
    while len(log.segment_bases) == 1:
        append(log, make_batch())
    assert work.calls["sync of one path"] == 1
    first = log.segments.all()[0]
    assert len(disk.inodes[first.path].durable) == first.size


# ------------------------------------------------------------------------------- syncs


def test_a_sync_that_ends_after_the_log_went_offline_acknowledges_nothing() -> None:
    log = open_log(MemoryDisk())
    told: list[PartitionLog] = []
    log.on_durable = told.append
    append(log, make_batch())
    ticket = log.begin_sync()
    log.go_offline(OSError(errno.EIO, "a test"))
    log.finish_sync(ticket)
    assert (log.durable_offset, told) == (0, [])


def test_a_sync_that_makes_nothing_durable_is_not_told() -> None:
    log = open_log(MemoryDisk())
    told: list[int] = []
    log.on_durable = lambda each: told.append(each.durable_offset)
    append(log, make_batch())
    log.sync_now()
    log.sync_now()
    assert told == [1]


# ------------------------------------------------------------------------------- beginnings


@pytest.mark.parametrize(
    ("end_offset", "expected"), [(2, None), (3, None), (4, 3), (5, 3), (6, None)]
)
def test_an_empty_log_begins_with_the_batch_in_which_it_begins(
    end_offset: int, expected: int | None
) -> None:
    log = open_log(MemoryDisk())
    log.reset_to(end_offset)
    assert log.base_to_begin_with(make_batch(3, base_offset=3)) == expected
    assert log.base_to_begin_with(b"") is None


def test_a_log_that_has_records_begins_nowhere_else() -> None:
    log = open_log(MemoryDisk())
    append(log, make_batch(4))
    assert log.base_to_begin_with(make_batch(3, base_offset=3)) is None


# ------------------------------------------------------------------------------- truncations


def test_a_truncation_of_a_log_without_producers_reads_nothing_for_them() -> None:
    disk = CountingDisk()
    log = open_log(disk, LogConfig())
    for _ in range(400):
        append(log, make_batch())
    log.close()
    log = open_log(disk, LogConfig())
    work = disk.fresh()
    log.truncate_to(399)
    assert work.bytes_read < 200 * len(make_batch())


def test_a_truncation_of_a_file_that_got_shorter_is_refused() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=1 << 20))
    for _ in range(3):
        append(log, make_batch())
    del disk.inodes[log.segments.active.path].data[len(make_batch()) :]
    with pytest.raises(CorruptLogError, match="the file ends inside a batch"):
        log.truncate_to(2)
    assert (log.offline, log.end_offset) == (None, 3)
