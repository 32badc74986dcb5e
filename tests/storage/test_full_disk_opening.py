"""Log directories that are opened while their disk is full, at any byte of what opening writes.

A full disk costs no log and no reader: what recovery writes can wait, or is in memory only. Once
there is room, everything on disk is as if it had been there all the time.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import NamedTuple

import pytest

from stele.ids import TopicPartition
from stele.wire.control_records import end_marker_batch
from storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    RECOVERY_POINT_FILE,
    MetaProperties,
    read_offsets,
)
from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import CutShortError, StorageError
from storage.formatted import format_directory
from storage.log import PartitionLog
from storage.txn_index import AbortedTransaction
from tests.support.batches import header_of, make_batch
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import HandClock

PATH = "/data"
TOPIC_ID = bytes(range(16))
KEY = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
BATCHES = 24
COMMITTED = 20  # the high watermark
CHECKPOINTED = 9  # the recovery point of an unclean end
TIMES = range(1000, 1000 + 10 * BATCHES + 20, 5)


class Seen(NamedTuple):
    """What clients can tell of a log."""

    offsets: tuple[int, int]
    epochs: list[tuple[int, int]]
    by_time: list[int]
    aborted: list[AbortedTransaction]
    open: list[tuple[int, int]]
    records: bytes


async def seen(log: PartitionLog) -> Seen:
    by_time = []
    for timestamp_ms in TIMES:
        found = await log.offset_for_timestamp(timestamp_ms)
        by_time.append(-1 if found is None else found.offset)
    records = b""
    offset = log.start_offset
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20)
        assert read.cold is None
        records += bytes(read.data)
        offset = read.next_offset
    aborted = log.transactions.aborted(0, log.end_offset)
    assert not isinstance(aborted, ColdRange)
    return Seen(
        (log.start_offset, log.end_offset),
        log.epochs.entries,
        by_time,
        list(aborted),
        log.producers.open_transactions(),
        records,
    )


def claimed(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.claim(disk, PATH, HandClock(), CONFIG)


async def loaded(disk: MemoryDisk) -> LogDirectory:
    disk.locks.clear()  # the process before has ended
    directory = claimed(disk)
    await directory.load()
    directory.start()
    return directory


def abort(log: PartitionLog, producer_id: int, *, epoch: int) -> None:
    marker = bytearray(
        end_marker_batch(producer_id, 0, commit=False, coordinator_epoch=0, timestamp_ms=1)
    )
    log.append_as_leader(
        marker, header_of(marker), leader_epoch=epoch, now_ms=1, check_sequence=False
    )


async def filled(disk: MemoryDisk) -> tuple[LogDirectory, PartitionLog]:
    """A log of several segments, and of transactions on both sides of its recovery point."""
    format_directory(disk, PATH, MetaProperties("cluster-a", 1, "dir-1"))
    directory = await loaded(disk)
    log = directory.create(KEY.topic, KEY.partition, TOPIC_ID)
    for number in range(BATCHES):
        if number in (4, 14):
            abort(log, number - 2, epoch=number // 12)
        elif number == CHECKPOINTED:
            await directory.flush()
            commit(log, CHECKPOINTED)
            await directory.checkpoint()
        producer = (number, 0, 0) if number in (2, 12, 18) else None
        batch = make_batch(
            timestamp_ms=1000 + 10 * number,
            size=60,
            producer=producer,
            is_transactional=producer is not None,
        )
        append(log, batch, epoch=number // 12)
    await directory.flush()
    commit(log, COMMITTED)
    assert len(log.segment_bases) > 4
    return directory, log


def lose(disk: MemoryDisk, *suffixes: str) -> None:
    for path in list(disk.inodes):
        if path.endswith(suffixes):
            disk.remove(path)


async def _closed(disk: MemoryDisk, directory: LogDirectory) -> None:
    await directory.close()


async def _killed(disk: MemoryDisk, directory: LogDirectory) -> None:
    """The process is gone."""


async def _without_power(disk: MemoryDisk, directory: LogDirectory) -> None:
    disk.power_loss()


async def _without_indexes(disk: MemoryDisk, directory: LogDirectory) -> None:
    lose(disk, ".index", ".timeindex", ".snapshot")


async def _with_old_indexes(disk: MemoryDisk, directory: LogDirectory) -> None:
    """As if the last entries had not reached the disk, where the recovery point does not prove
    that they have."""
    for path, inode in disk.inodes.items():
        name, _, suffix = path.rpartition("/")[2].partition(".")
        if suffix in ("index", "timeindex") and int(name) > CHECKPOINTED:
            entry_bytes = 8 if path.endswith(".index") else 12
            del inode.data[len(inode.data) // 2 // entry_bytes * entry_bytes :]


ENDS = [_closed, _killed, _without_power, _without_indexes, _with_old_indexes]


@pytest.mark.parametrize("end", ENDS)
async def test_a_full_disk_costs_an_opening_nothing(end: Callable[..., object]) -> None:
    original = MemoryDisk()
    directory, log = await filled(original)
    expected = await seen(log)
    await end(original, directory)  # type: ignore[misc]
    needed = bytes_written_by_opening(original)
    for room_bytes in {*range(0, needed, 7), max(0, needed - 1)}:
        disk = copy.deepcopy(original)
        disk.capacity = disk.used() + room_bytes
        for _ in range(2):  # the second process finds what the first has left
            directory = await loaded(disk)
            assert not directory.corrupt
            assert await seen(directory.logs[KEY]) == expected
        disk.capacity = None
        commit(directory.logs[KEY], COMMITTED)
        await directory.flush()
        await directory.checkpoint()
        assert read_offsets(disk, f"{PATH}/{RECOVERY_POINT_FILE}") == {KEY: COMMITTED}
        disk.power_loss()
        directory = await loaded(disk)
        assert await seen(directory.logs[KEY]) == expected


def bytes_written_by_opening(original: MemoryDisk) -> int:
    disk = copy.deepcopy(original)
    disk.locks.clear()
    before = disk.used()
    claimed(disk).load_now()
    return max(0, disk.used() - before) + 100  # a file is written anew beside the old one


async def test_a_truncation_waits_for_room_where_the_recovery_point_could_not_be_lowered() -> None:
    disk = MemoryDisk()
    directory, log = await filled(disk)
    expected = await seen(log)
    await directory.close()
    end_offset = log.end_offset
    mark = disk.read_file(f"{PATH}/{CLEAN_SHUTDOWN_FILE}")
    disk.capacity = disk.used() - len(mark)  # which the opening removes
    directory = await loaded(disk)
    log = directory.logs[KEY]
    assert read_offsets(disk, f"{PATH}/{RECOVERY_POINT_FILE}") == {KEY: end_offset}
    with pytest.raises(StorageError, match="nothing was changed"):
        log.truncate_to(COMMITTED)
    assert await seen(log) == expected
    disk.capacity = None
    assert log.truncate_to(COMMITTED) == COMMITTED
    disk.power_loss()
    directory = await loaded(disk)
    assert not directory.corrupt
    assert directory.logs[KEY].end_offset == COMMITTED


async def test_a_log_whose_aborts_find_no_room_stops_alone() -> None:
    """A power loss took the transaction index and not the marker, and the disk is full. The log is
    repaired at the next start with room."""
    disk = MemoryDisk()
    directory, log = await filled(disk)
    expected = await seen(log)
    other = directory.create("t", 1, TOPIC_ID)
    append(other, make_batch())
    await directory.flush()
    lose(disk, ".txnindex")
    disk.capacity = disk.used()
    directory = await loaded(disk)
    assert list(directory.logs) == [other.key]
    assert isinstance(directory.corrupt[KEY], CutShortError)
    disk.capacity = None
    directory = await loaded(disk)
    assert not directory.corrupt
    again = await seen(directory.logs[KEY])
    assert again._replace(aborted=[]) == expected._replace(aborted=[])
    assert again.aborted == [each for each in expected.aborted if each.last_offset >= CHECKPOINTED]


async def test_a_segment_that_ends_on_a_full_disk_leaves_no_part_of_an_index() -> None:
    """Its end writes the indexes. Later the recovery point passes it, so that the next process
    relies on the files that it finds."""
    original = MemoryDisk()
    directory, log = await filled(original)
    wanted = len(log.segment_bases) + 1
    in_memory_only = 0
    for room_bytes in range(0, 400, 3):
        disk = copy.deepcopy(original)
        directory = await loaded(disk)
        log = directory.logs[KEY]
        timestamp_ms = TIMES[-1]
        while len(log.segment_bases) < wanted:
            batch = make_batch(timestamp_ms=timestamp_ms, size=60)
            disk.capacity = disk.used() + room_bytes
            with contextlib.suppress(StorageError):
                append(log, batch, epoch=2)
            disk.capacity = None
            append(log, batch, epoch=2)
            timestamp_ms += 1
        sealed = f"{PATH}/{KEY}/{log.segment_bases[-2]:020}.timeindex"
        in_memory_only += not disk.exists(sealed)
        await directory.flush()
        commit(log, log.end_offset)
        await directory.checkpoint()
        expected = await seen(log)
        newest = await log.max_timestamp_offset()
        disk.power_loss()
        log = (await loaded(disk)).logs[KEY]
        assert await seen(log) == expected
        assert await log.max_timestamp_offset() == newest
    assert in_memory_only > 3
