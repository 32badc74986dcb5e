"""The logs of a directory by their state: sound, corrupt, half made, unknown."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable

import pytest

from stele.ids import TopicPartition
from storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CORRUPT_FILE,
    LEADER_EPOCH_FILE,
    MetaProperties,
)
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import (
    CorruptLogError,
    LogDirectoryError,
    StorageError,
    UnusableDirectoryError,
)
from storage.formatted import format_directory, read_formatted
from storage.log import PartitionLog
from storage.steps import Steps
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import HandClock

PATH = "/data"
KEY = TopicPartition("t", 0)
OURS = MetaProperties("cluster-a", 1, "dir-1")
TOPIC_ID = bytes(range(16))
CORRUPT = CorruptLogError(f"{PATH}/t-0", position=0, offset=0, reason="a test")


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    format_directory(disk, PATH, OURS)
    return disk


def open_directory(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, PATH, HandClock(), LogConfig())
    directory.start()
    return directory


def filled(directory: LogDirectory, count: int = 3) -> PartitionLog:
    log = directory.create(*KEY, TOPIC_ID)
    for number in range(count):
        append(log, make_batch(producer=(7, 0, number)))
    commit(log, count)
    return log


# ------------------------------------------------------------------------------- names


async def test_a_log_is_not_made_over_another_one(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    log = filled(directory)
    with pytest.raises(ValueError, match="t-0 is there already"):
        directory.create(*KEY, TOPIC_ID)
    assert directory.logs == {KEY: log}
    assert log.end_offset == 3


async def test_a_corrupt_log_is_here_and_gives_way_only_when_it_is_discarded(
    disk: MemoryDisk,
) -> None:
    directory = open_directory(disk)
    filled(directory)
    directory.mark_corrupt(*KEY, CORRUPT)
    with pytest.raises(ValueError, match="t-0 is there already"):
        directory.create(*KEY, TOPIC_ID)
    assert directory.holds(KEY)
    assert directory.topic_id(KEY) == TOPIC_ID
    assert directory.discard_corrupt(*KEY, TOPIC_ID).end_offset == 0


async def test_a_log_that_is_not_here_is_deleted_without_a_word(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    directory = open_directory(disk)
    with caplog.at_level(logging.WARNING):
        directory.delete(*KEY)
    assert caplog.text == ""


async def test_a_sync_that_began_before_a_deletion_brings_no_part_of_the_log_back(
    disk: MemoryDisk,
) -> None:
    """It is a sync of the directories as they were named then."""
    directory = open_directory(disk)
    filled(directory)
    await directory.flush()
    await directory.checkpoint()
    disk.gate = asyncio.Event()
    directory.create("t", 1, TOPIC_ID)
    flushing = asyncio.ensure_future(directory.flush())
    for _ in range(3):
        await asyncio.sleep(0)
    directory.delete(*KEY)
    disk.gate.set()
    await flushing
    disk.power_loss()
    again = open_directory(disk)
    assert (dict(again.corrupt), [*again.logs]) == ({}, [TopicPartition("t", 1)])


async def test_a_fault_that_is_noted_is_not_noted_again(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opening writes nothing for it: the disk may be full."""
    directory = open_directory(disk)
    filled(directory)
    directory.mark_corrupt(*KEY, CORRUPT)
    await directory.close()
    note = disk.inodes[f"{PATH}/t-0/{CORRUPT_FILE}"]
    again = open_directory(disk)
    assert [*again.corrupt] == [KEY]
    assert disk.inodes[f"{PATH}/t-0/{CORRUPT_FILE}"] is note


# ------------------------------------------------------------------------------- the disk


async def begin_copy(directory: LogDirectory) -> None:
    await directory.copies.begin(KEY, TOPIC_ID, LogConfig())


async def begin_log(directory: LogDirectory) -> None:
    directory.create(*KEY, TOPIC_ID)


@pytest.mark.parametrize("begin", [begin_copy, begin_log])
async def test_a_directory_that_was_removed_takes_no_more_logs(
    disk: MemoryDisk, begin: Callable[[LogDirectory], Awaitable[None]]
) -> None:
    """It was removed under a broker, or is not mounted any more. If a new log brought the path
    back, records would be acknowledged that the next start does not find."""
    directory = open_directory(disk)
    disk.remove_tree(PATH)
    with pytest.raises(StorageError, match="cannot be made: No such file or directory"):
        await begin(directory)
    assert directory.offline is not None
    assert not disk.exists(PATH)


def test_a_directory_that_cannot_be_locked_says_what_to_check(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "not allowed", path)

    monkeypatch.setattr(disk, "lock", refuse)
    with pytest.raises(
        UnusableDirectoryError,
        match=r"^/data cannot be written: not allowed; check its owner and mode$",
    ):
        open_directory(disk)


def test_an_owner_that_cannot_be_read_is_told_from_another_owner(disk: MemoryDisk) -> None:
    disk.open_error = errno.EACCES
    with pytest.raises(UnusableDirectoryError, match=r"cannot be read: Permission denied$"):
        read_formatted(disk, PATH)
    disk.open_error = None
    assert read_formatted(disk, PATH, cluster_id="cluster-a", node_id=1) == OURS
    with pytest.raises(LogDirectoryError, match="belongs to cluster cluster-a"):
        read_formatted(disk, PATH, cluster_id="cluster-b")


async def test_a_device_that_fails_while_logs_are_opened_fails_the_opening(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = open_directory(disk)
    filled(earlier)
    await earlier.close()
    directory = LogDirectory.claim(disk, PATH, HandClock(), LogConfig())
    loading = directory.loading

    def failing() -> Steps[None]:
        yield from loading()
        directory.failed(directory.logs[KEY], OSError(errno.ENXIO, "the device is gone"))

    monkeypatch.setattr(directory, "loading", failing)
    with pytest.raises(LogDirectoryError, match="the device is gone"):
        await directory.load()


async def test_a_log_whose_watermark_is_not_known_claims_no_more_than_before(
    disk: MemoryDisk,
) -> None:
    directory = open_directory(disk)
    log = filled(directory)
    await directory.flush()
    await directory.checkpoint()
    append(log, make_batch(producer=(7, 0, 3)))
    await directory.flush()

    def fail() -> int:
        raise RuntimeError("a bug")

    log.ask_high_watermark = fail
    await directory.checkpoint()
    assert log.offline is not None
    assert directory.checkpointed(log)[:2] == (3, 3)


async def test_a_log_whose_watermark_is_not_known_claims_the_lesser_of_its_checkpoints(
    disk: MemoryDisk,
) -> None:
    """A clean end leaves the recovery point at the log's end, and a full disk keeps it there. As a
    high watermark it would make a log that loses its uncommitted end corrupt."""
    directory = open_directory(disk)
    commit(filled(directory), 1)
    await directory.close()
    disk.capacity = 0
    directory = open_directory(disk)
    disk.capacity = None
    log = directory.logs[KEY]
    assert directory.checkpointed(log)[:2] == (3, 1)

    def fail() -> int:
        raise RuntimeError("a bug")

    log.ask_high_watermark = fail
    await directory.checkpoint()
    assert directory.checkpointed(log)[:2] == (1, 1)


async def test_the_records_of_a_copy_are_in_the_checkpoints(disk: MemoryDisk) -> None:
    """It is a log as soon as it takes over: whatever it has acknowledged then must not be lost
    unnoticed."""
    directory = open_directory(disk)
    copy = await directory.copies.begin(KEY, TOPIC_ID, LogConfig())
    for _ in range(3):
        append(copy, make_batch(), epoch=4)
    commit(copy, 2)
    await directory.flush()
    await directory.checkpoint()
    assert directory.checkpointed(copy)[:2] == (2, 2)
    assert disk.read_file(f"{copy.directory}/{LEADER_EPOCH_FILE}").split() == [
        b"0", b"1", b"4", b"0",
    ]  # fmt: skip


# ------------------------------------------------------------------------------- the end


async def test_a_clean_shutdown_leaves_nothing_to_rebuild(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    directory = open_directory(disk)
    filled(directory)
    await directory.close()
    base = f"{PATH}/t-0/{0:020d}"
    assert disk.exists(f"{base}.index")
    assert disk.exists(f"{base}.timeindex")
    assert disk.exists(f"{PATH}/t-0/{3:020d}.snapshot")
    with caplog.at_level(logging.WARNING):
        assert open_directory(disk).clean_shutdown
    assert caplog.text == ""


async def test_a_log_that_failed_is_left_as_it_is_at_the_end(disk: MemoryDisk) -> None:
    """Its files may hold what it does not know of: recovery makes the rest."""
    directory = open_directory(disk)
    log = filled(directory)
    log.fail(RuntimeError("a bug"))
    await directory.close()
    base = f"{PATH}/t-0/{0:020d}"
    assert not disk.exists(f"{base}.index")
    assert not disk.exists(f"{PATH}/t-0/{3:020d}.snapshot")
    assert not disk.exists(f"{PATH}/{CLEAN_SHUTDOWN_FILE}")
