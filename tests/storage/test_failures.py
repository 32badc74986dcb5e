"""What each error of a disk stops: the directory, one log, or one request."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from storage.checkpoints import MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import (
    CorruptLogError,
    CutShortError,
    Failure,
    StorageError,
    UnreadableLogError,
    words_of,
)
from storage.formatted import format_directory
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.storage import NAME_MAX_BYTES, MemoryDisk, append, commit
from tests.support.timing import HandClock
from world.disk import File, ReadFailedError, SyncFailedError

PATH = "/data"
TOPIC_ID = bytes(range(16))
NOT_THE_DEVICE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.ENAMETOOLONG)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    format_directory(disk, PATH, MetaProperties("cluster-a", 1, "dir-1"))
    return disk


def open_directory(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, PATH, HandClock(), LogConfig(segment_bytes=400))
    directory.start()
    return directory


@given(st.sampled_from(sorted(errno.errorcode)))
def test_every_error_has_one_kind_and_only_failed_syncs_are_always_the_devices(number: int) -> None:
    plain = Failure.of(OSError(number, os.strerror(number)))
    read = Failure.of(ReadFailedError(number, os.strerror(number)))
    assert Failure.of(SyncFailedError(number, os.strerror(number))) is Failure.DEVICE
    assert plain is not Failure.MEDIUM
    assert read is plain or (plain, read) == (Failure.DEVICE, Failure.MEDIUM)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, Failure.DEVICE),
        (errno.EROFS, Failure.DEVICE),
        (errno.ENOSPC, Failure.SPACE),
        (errno.EDQUOT, Failure.SPACE),
        (errno.EMFILE, Failure.SHORTAGE),
        (errno.ENOMEM, Failure.SHORTAGE),
        (errno.ENAMETOOLONG, Failure.REQUEST),
        (errno.ENOENT, Failure.REQUEST),
    ],
)
def test_kinds_of_errors(number: int, kind: Failure) -> None:
    assert Failure.of(OSError(number, os.strerror(number))) is kind


async def use(directory: LogDirectory, log: PartitionLog, at: str) -> None:
    """Do something that needs a file handle."""
    if at == "create":
        directory.create("v", 0, TOPIC_ID)
    elif at == "roll":
        for _ in range(10):
            append(log, make_batch(size=50))
    elif at == "checkpoint":
        await directory.checkpoint()
    elif at == "retention":
        log.advance_start_offset(10)
        log.remove_dead_segments(in_order=True)
    else:
        log.read(0, 1000)


@pytest.mark.parametrize("number", NOT_THE_DEVICE)
@pytest.mark.parametrize("at", ["create", "roll", "checkpoint", "read", "retention"])
async def test_what_is_not_the_devices_fault_refuses_one_request_only(
    disk: MemoryDisk, number: int, at: str
) -> None:
    directory = open_directory(disk)
    log, other = directory.create("t", 0, TOPIC_ID), directory.create("u", 0, TOPIC_ID)
    for _ in range(10):
        append(log, make_batch(size=50))
    await directory.flush()
    commit(log, 10)
    for segment in log.segments.sealed():
        segment.unload()
    disk.open_error = number
    with pytest.raises(StorageError):
        await use(directory, log, at)
    disk.open_error = None
    assert directory.offline is log.offline is other.offline is None
    end_offset = log.end_offset
    assert append(log, make_batch(size=50)) == end_offset
    await directory.flush()
    commit(log, log.end_offset)
    await directory.checkpoint()
    assert log.read(log.start_offset, 1000).data
    directory.create("v", 0, TOPIC_ID)
    await directory.close()
    again = open_directory(disk)
    assert again.corrupt == {}
    assert again.logs[TopicPartition("t", 0)].end_offset == end_offset + 1


@pytest.mark.parametrize("number", NOT_THE_DEVICE)
async def test_an_interrupted_cut_is_not_begun_or_ends_the_log_only(
    disk: MemoryDisk, number: int
) -> None:
    directory = open_directory(disk)
    log, other = directory.create("t", 0, TOPIC_ID), directory.create("u", 0, TOPIC_ID)
    failed: list[object] = []
    directory.on_log_failed = lambda log, error: failed.append(log)
    for _ in range(10):
        append(log, make_batch(size=50))
    await directory.flush()
    disk.open_error = number
    with pytest.raises(StorageError):
        log.truncate_to(4)
    disk.open_error = None
    assert directory.offline is other.offline is None
    assert (failed == [log]) is (log.offline is not None)
    disk.locks.clear()  # the process ends
    recovered = open_directory(disk).logs[TopicPartition("t", 0)]
    assert recovered.end_offset >= 4


@pytest.mark.parametrize("is_clean", [False, True])
async def test_a_change_that_was_cut_short_is_repaired_at_the_next_start(
    disk: MemoryDisk, is_clean: bool
) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for _ in range(3):
        append(log, make_batch(size=50))
    await directory.flush()
    key = TopicPartition("t", 0)
    error = CutShortError(log.directory, position=0, offset=3, reason="for the test")
    directory.mark_corrupt("t", 0, error)
    assert directory.corrupt == {key: error}
    if is_clean:
        await directory.close()
    else:
        disk.locks.clear()  # the process ends
    again = open_directory(disk)
    assert again.corrupt == {}
    assert again.logs[key].end_offset == 3


@pytest.mark.parametrize("length", [1, 212, 213, 214, 248, 249])
@pytest.mark.parametrize("suffix", ["-delete", "-corrupt"])
async def test_a_log_with_a_long_name_is_set_aside_and_known_as_such_later(
    disk: MemoryDisk, length: int, suffix: str
) -> None:
    directory = open_directory(disk)
    name = "n" * length
    for _ in range(2):
        log = directory.create(name, 0, TOPIC_ID)
        if suffix == "-corrupt":
            error = CorruptLogError(log.directory, position=0, offset=0, reason="for the test")
            directory.mark_corrupt(name, 0, error)
            directory.discard_corrupt(name, 0, TOPIC_ID)
        directory.delete(name, 0)
    aside = [each for each in disk.list(PATH) if each.endswith(suffix)]
    assert len(aside) == 2
    assert all(len(each) <= NAME_MAX_BYTES for each in aside)
    await directory.close()
    again = open_directory(disk)
    assert again.logs == {}
    assert again.corrupt == {}
    await again.remove_deleted()
    assert not [each for each in disk.list(PATH) if each.endswith("-delete")]


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_log_that_could_not_be_made_leaves_nothing_behind(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    directory = open_directory(disk)
    open_file = disk.open

    def refuse(path: str, *, create: bool = False) -> File:
        if path.endswith(".log"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return open_file(path, create=create)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", refuse)
        with pytest.raises(StorageError, match="cannot be made"):
            directory.create("t", 0, TOPIC_ID)
    key = TopicPartition("t", 0)
    assert directory.half_made == {key: TOPIC_ID}
    assert directory.holds(key)
    assert directory.topic_id(key) == TOPIC_ID
    if goes_on:
        directory.create("t", 0, TOPIC_ID)
        assert directory.half_made == {}
        directory.delete("t", 0)
    directory.delete("t", 0)
    assert not directory.holds(key)
    assert not disk.exists(f"{PATH}/t-0")


async def test_a_deletion_that_failed_has_changed_nothing_and_can_be_repeated(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), source)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", refuse)
        with pytest.raises(StorageError, match="cannot be set aside"):
            directory.delete("t", 0)
    assert directory.offline is None
    append(log, make_batch())
    directory.delete("t", 0)
    assert directory.logs == {}
    directory.create("t", 0, b"another-topic-id")


@pytest.mark.parametrize("step", ["set aside", "make"])
async def test_discarding_a_corrupt_log_goes_on_where_it_failed(
    disk: MemoryDisk, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    append(log, make_batch())
    error = CorruptLogError(log.directory, position=0, offset=0, reason="for the test")
    directory.mark_corrupt("t", 0, error)

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source)

    for _ in range(2):
        with monkeypatch.context() as patch:
            if step == "make":
                patch.setattr(disk, "append_error", errno.ENOSPC)
            else:
                patch.setattr(disk, "rename", refuse)
            with pytest.raises(StorageError):
                directory.discard_corrupt("t", 0, TOPIC_ID)
    assert directory.offline is None
    assert directory.discard_corrupt("t", 0, TOPIC_ID).end_offset == 0
    assert directory.corrupt == {}


async def test_a_part_that_cannot_be_read_costs_neither_log_nor_directory(
    disk: MemoryDisk,
) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for _ in range(10):
        append(log, make_batch(size=50))
    first = log.segments.all()[0]
    disk.unreadable.add(first.path)
    with pytest.raises(UnreadableLogError, match="cannot be read"):
        log.read(0, 1000)
    assert log.read(log.segments.active.base_offset, 1000).data
    assert log.offline is directory.offline is None


async def test_a_cold_part_that_cannot_be_read_is_told_from_one_that_was_deleted(
    disk: MemoryDisk,
) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for _ in range(10):
        append(log, make_batch(size=50))
    disk.cold = True
    cold = log.read(0, 1000).cold
    assert cold is not None
    disk.unreadable.add(cold.path)
    with pytest.raises(UnreadableLogError, match="cannot be read"):
        await log.warm(cold)
    inode = disk.inodes.pop(cold.path)
    with pytest.raises(UnreadableLogError, match="gone"):
        await log.warm(cold)
    disk.inodes[cold.path] = inode
    log.advance_start_offset(10)
    log.remove_dead_segments()
    await log.warm(cold)


async def test_an_unreadable_log_costs_its_replica_only_at_start(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    for topic in ("t", "u"):
        append(directory.create(topic, 0, TOPIC_ID), make_batch())
    await directory.close()
    disk.unreadable.add(f"{PATH}/t-0/{0:020d}.log")
    again = open_directory(disk)
    assert list(again.corrupt) == [TopicPartition("t", 0)]
    assert again.corrupt_topic_ids == {TopicPartition("t", 0): TOPIC_ID}
    assert list(again.logs) == [TopicPartition("u", 0)]


def test_an_error_without_a_number_is_the_devices() -> None:
    """Nothing says that the files are as they were."""
    assert Failure.of(OSError("of a library")) is Failure.DEVICE


def test_an_error_is_named_in_words() -> None:
    assert words_of(OSError(errno.EIO, "lost", "/d/x")) == "lost"
    assert words_of(OSError("of a library")) == "of a library"


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
async def test_what_can_be_made_anew_may_be_unreadable(disk: MemoryDisk, suffix: str) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for number in range(10):
        append(log, make_batch(size=50, producer=(7, 0, number)))
    await directory.close()
    disk.unreadable |= {path for path in disk.inodes if path.endswith(suffix)}
    again = open_directory(disk)
    assert again.corrupt == {}
    recovered = again.logs[TopicPartition("t", 0)]
    assert recovered.read(0, 1000).data
    assert append(recovered, make_batch(size=50, producer=(7, 0, 10))) == 10
