"""A log that fails in a way that nobody expected stops no other log of its directory."""

from __future__ import annotations

import errno

import pytest

from stele.ids import TopicPartition
from storage.checkpoints import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import CutShortError, LogDirectoryError, StorageError
from storage.formatted import format_directory
from storage.log import PartitionLog
from storage.segment import Segment
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, MemoryFile, append, commit
from tests.support.timing import HandClock

PATH = "/data"
TOPIC_ID = bytes(range(16))
T, U = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    format_directory(disk, PATH, MetaProperties("cluster-a", 1, "dir-1"))
    return disk


def opened(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, PATH, HandClock(), LogConfig(segment_bytes=400))
    directory.start()
    return directory


async def filled(directory: LogDirectory) -> tuple[PartitionLog, PartitionLog]:
    logs = directory.create("t", 0, TOPIC_ID), directory.create("u", 0, TOPIC_ID)
    for log in logs:
        for _ in range(10):
            append(log, make_batch(size=50))
        commit(log, 10)
    await directory.flush()
    return logs


@pytest.mark.parametrize("error", [OverflowError("2^31"), OSError(errno.EINVAL, "Invalid")])
async def test_at_load(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    directory = opened(disk)
    await filled(directory)
    await directory.close()

    load = Segment.load_indexes

    def fail(segment: Segment) -> bool:
        if "/t-0/" in segment.path:
            raise error
        return load(segment)

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "load_indexes", fail)
        again = opened(disk)
    assert list(again.logs) == [U]
    assert isinstance(again.corrupt[T], CutShortError)
    await again.close()
    # No mark on disk, neither of the fault nor of a clean shutdown: the next start recovers.
    third = opened(disk)
    assert not third.clean_shutdown
    assert third.logs[T].end_offset == third.logs[U].end_offset == 10
    await third.close()


@pytest.mark.parametrize("name", [LEADER_EPOCH_FILE, PARTITION_METADATA_FILE])
async def test_at_load_by_a_malformed_file(disk: MemoryDisk, name: str) -> None:
    directory = opened(disk)
    await filled(directory)
    await directory.close()
    file = disk.open(f"{PATH}/t-0/{name}", create=True)
    file.truncate(0)
    file.append([b"neither version nor count"])
    again = opened(disk)
    assert list(again.logs) == [U]
    assert list(again.corrupt) == [T]
    await again.close()


async def test_in_a_group_of_syncs(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = opened(disk)
    failed: list[PartitionLog] = []
    directory.on_log_failed = lambda log, error: failed.append(log)
    log, other = await filled(directory)

    def fail() -> None:
        raise OverflowError

    monkeypatch.setattr(log, "begin_sync", fail)
    append(log, make_batch())
    append(other, make_batch())
    await directory.flush()
    assert (other.durable_offset, other.offline) == (11, None)
    assert log.durable_offset == 10
    assert directory.offline is None
    assert failed == [log]
    await directory.close()
    assert not opened(disk).clean_shutdown


@pytest.mark.parametrize("at", ["ask_high_watermark", "checkpoint_epochs"])
async def test_in_a_checkpoint(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    directory = opened(disk)
    log, other = await filled(directory)
    await directory.checkpoint()
    for each in (log, other):
        append(each, make_batch(), epoch=7)
        commit(each, 11)
    await directory.flush()

    def fail() -> int:
        raise OverflowError

    monkeypatch.setattr(log, at, fail)
    await directory.checkpoint()
    assert directory.checkpointed(other) == (11, 11, 0)
    assert directory.checkpointed(log) == (10, 10, 0)
    assert log.offline is not None
    assert directory.offline is None


@pytest.mark.parametrize(
    ("number", "other_is_written"), [(errno.ENAMETOOLONG, True), (errno.EMFILE, False)]
)
async def test_a_checkpoint_that_a_log_cannot_have_is_told(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, number: int, other_is_written: bool
) -> None:
    """What may be the fault of that log's names is raised when the others have theirs."""
    directory = opened(disk)
    log, other = await filled(directory)
    await directory.checkpoint()
    for each in (log, other):
        append(each, make_batch(), epoch=7)
        commit(each, 11)
    await directory.flush()
    open_file = disk.open

    def refuse(path: str, *, create: bool = False) -> MemoryFile:
        if path.startswith(f"{log.directory}/"):
            raise OSError(number, "a test", path)
        return open_file(path, create=create)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", refuse)
        with pytest.raises(StorageError, match="a checkpoint failed: a test"):
            await directory.checkpoint()
    assert directory.checkpointed(other)[0] == (11 if other_is_written else 10)
    assert directory.checkpointed(log) == (10, 10, 0)
    await directory.checkpoint()
    assert directory.checkpointed(log) == (11, 11, 0)


async def test_a_checkpoint_of_what_is_written_already_touches_no_disk(disk: MemoryDisk) -> None:
    directory = opened(disk)
    await filled(directory)
    await directory.checkpoint()
    synced = len(disk.synced)
    await directory.checkpoint()
    assert len(disk.synced) == synced


async def test_a_recovery_point_that_cannot_be_lowered_fails_the_opening(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a full disk may keep it: there is room again later."""
    directory = opened(disk)
    log, _ = await filled(directory)
    commit(log, 5)
    await directory.close()

    def refuse(path: str, data: bytes) -> None:
        raise OSError(errno.EACCES, "a test", path)

    monkeypatch.setattr(disk, "replace_file_now", refuse)
    with pytest.raises(LogDirectoryError, match="cannot be opened"):
        opened(disk)


async def test_in_retention(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = opened(disk)
    log, other = await filled(directory)
    for each in (log, other):
        each.advance_start_offset(9)

    async def fail() -> int:
        raise OverflowError

    monkeypatch.setattr(log, "retire_dead_segments", fail)
    assert await directory.retire_dead_segments() > 0
    assert other.segment_bases[0] > 0
    assert log.offline is not None
    await directory.close()


@pytest.mark.parametrize("as_leader", [True, False])
async def test_at_an_append(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, as_leader: bool
) -> None:
    """The file has bytes that the log does not know, so the log goes offline, and recovery finds
    them."""
    directory = opened(disk)
    log, other = await filled(directory)

    def fail(*_: object) -> None:
        raise OverflowError

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "note", fail)
        with pytest.raises(StorageError, match="OverflowError"):
            _append_one(log, as_leader=as_leader)
    assert log.offline is not None
    assert append(other, make_batch()) == 10
    await directory.close()
    again = opened(disk)
    assert (again.clean_shutdown, again.logs[T].end_offset) == (False, 11)
    await again.close()


def _append_one(log: PartitionLog, *, as_leader: bool) -> None:
    if as_leader:
        append(log, make_batch())
    else:
        log.append_as_follower(make_batch(base_offset=10))
