"""Logs that cannot be deleted at once, when their deletion is tried again."""

from __future__ import annotations

import errno

import pytest

from broker.replication.log_deletion import LogDeletion
from broker.replication.relaxed_flush import RelaxedFlush
from stele.ids import TopicPartition
from storage.checkpoints import MetaProperties
from storage.directory import LogDirectory
from storage.formatted import format_directory
from tests.support.storage import MemoryDisk
from tests.support.timing import HandClock

KEY = TopicPartition("orders", 0)
OLD, NEW = b"old-topic-of-it!", b"new-topic-of-it!"


class RefusingDisk(MemoryDisk):
    """Renames nothing while it is told an errno."""

    def __init__(self) -> None:
        super().__init__()
        self.rename_error: int | None = None

    def rename(self, source: str, target: str) -> None:
        if self.rename_error is not None:
            raise OSError(self.rename_error, "no rename", source)
        super().rename(source, target)


class Undeleted:
    """A directory whose log could not be deleted."""

    def __init__(self, rename_error: int = errno.ENOMEM) -> None:
        self.disk = RefusingDisk()
        format_directory(self.disk, "/d", MetaProperties("cluster", 1, "directory"))
        self.directory = LogDirectory.open(self.disk, "/d", HandClock())
        self.directory.create(*KEY, OLD)
        self.deletion = LogDeletion({self.directory: RelaxedFlush(self.disk, self.directory)})
        self.disk.rename_error = rename_error
        self.deletion.delete(self.directory, KEY)
        assert self.directory.holds(KEY)


def test_what_could_not_be_deleted_is_deleted_when_the_disk_lets_it() -> None:
    undeleted = Undeleted()
    undeleted.deletion.retry()
    assert undeleted.directory.holds(KEY)
    undeleted.disk.rename_error = None
    undeleted.deletion.retry()
    assert not undeleted.directory.holds(KEY)


def test_a_log_that_has_gone_meanwhile_is_not_missed() -> None:
    undeleted = Undeleted()
    undeleted.disk.rename_error = None
    undeleted.directory.delete(*KEY)
    undeleted.deletion.retry()
    assert not undeleted.directory.holds(KEY)


def test_the_log_of_a_later_topic_of_the_name_is_not_deleted() -> None:
    undeleted = Undeleted()
    undeleted.disk.rename_error = None
    undeleted.directory.delete(*KEY)
    log = undeleted.directory.create(*KEY, NEW)
    undeleted.deletion.retry()
    assert undeleted.directory.get(*KEY) is log


def test_nothing_is_deleted_from_a_directory_that_is_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    undeleted = Undeleted(errno.EIO)
    assert undeleted.directory.offline is not None
    caplog.clear()
    for _ in range(2):
        undeleted.deletion.retry()
    assert caplog.text == ""
    undeleted.disk.rename_error = None
    undeleted.deletion.retry()
    assert undeleted.directory.holds(KEY)
