"""Logs without their topic id: what was synced is corrupt, what was never synced begins empty."""

from __future__ import annotations

import pytest

from stele.ids import TopicPartition
from storage.checkpoints import PARTITION_METADATA_FILE, MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import UnreadableLogError
from storage.formatted import format_directory
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import HandClock

PATH = "/data"
KEY = TopicPartition("t", 0)
FILE = f"{PATH}/t-0/{PARTITION_METADATA_FILE}"
OLD, NEW = b"the topic it was", b"a topic made anew"[:16]
RELAXED = LogConfig(flush_messages=1000)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    format_directory(disk, PATH, MetaProperties("cluster-a", 1, "dir-1"))
    return disk


def opened(disk: MemoryDisk, config: LogConfig | None = None) -> LogDirectory:
    """After the process that had it has died."""
    disk.locks.clear()
    directory = LogDirectory.open(disk, PATH, HandClock(), config)
    directory.start()
    return directory


async def written(disk: MemoryDisk) -> LogDirectory:
    """A log with three synced batches."""
    directory = opened(disk)
    log = directory.create("t", 0, OLD)
    for _ in range(3):
        append(log, make_batch())
    await directory.flush()
    return directory


# ------------------------------------------------------------------- a checkpoint knows the log


@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start", "cleaner"])
async def test_a_log_that_one_checkpoint_knows_is_corrupt(disk: MemoryDisk, name: str) -> None:
    directory = await written(disk)
    log = directory.logs[KEY]
    commit(log, 3)
    log.advance_start_offset(1)
    await directory.checkpoint()
    await directory.checkpoint_clean_end(log, 2, log.truncation_generation)
    for each in disk.list(PATH):
        if each.endswith("-offset-checkpoint") and not each.startswith(name):
            disk.remove(f"{PATH}/{each}")
    disk.remove(FILE)
    again = opened(disk)
    assert again.corrupt_topic_ids == {KEY: None}
    assert "the topic of these records is not known" in str(again.corrupt[KEY])
    assert (again.logs, again.half_made) == ({}, {})


@pytest.mark.parametrize("cleanly", [True, False])
async def test_a_corrupt_log_keeps_no_topic_id_that_the_metadata_gave_it(
    disk: MemoryDisk, cleanly: bool
) -> None:
    """The note may be lost. With a topic id the log would look sound then."""
    directory = await written(disk)
    await directory.close()
    disk.remove(FILE)
    again = opened(disk)
    again.name_corrupt("t", 0, NEW)
    assert again.corrupt_topic_ids == {KEY: NEW}
    if cleanly:
        await again.close()
    third = opened(disk)
    assert third.corrupt_topic_ids == {KEY: None}
    log = third.discard_corrupt("t", 0, NEW)
    assert (log.topic_id, log.end_offset) == (NEW, 0)
    kept = [name for name in disk.list(PATH) if name.endswith("-corrupt")]
    assert [disk.exists(f"{PATH}/{name}/{0:020d}.log") for name in kept] == [True]
    await third.close()
    assert opened(disk).logs[KEY].topic_id == NEW


async def test_a_topic_id_that_cannot_be_read_makes_a_log_corrupt(disk: MemoryDisk) -> None:
    """It was on disk, so something may have been acknowledged."""
    await written(disk)
    disk.unreadable.add(FILE)
    again = opened(disk)
    assert again.corrupt_topic_ids == {KEY: None}
    assert isinstance(again.corrupt[KEY], UnreadableLogError)


# ----------------------------------------------------------------- no checkpoint knows the log


@pytest.mark.parametrize("kept", [0, 1, 20, -2, None])
async def test_what_a_power_loss_leaves_of_a_log_without_topic_id_is_not_used(
    disk: MemoryDisk, kept: int | None
) -> None:
    """It may leave the batches, and no file, only a part of the file, or zeroes. A file that lacks
    no more than its last newline is whole, as Kafka writes it."""
    await written(disk)
    if kept is None:
        disk.remove(FILE)
    else:
        file = disk.inodes[FILE]
        file.data = file.data[:kept] or bytearray(len(file.data))
    again = opened(disk)
    assert again.half_made == {KEY: None}
    assert (again.logs, again.corrupt) == ({}, {})
    log = again.create("t", 0, NEW)
    assert (log.topic_id, log.end_offset, again.half_made) == (NEW, 0, {})
    assert any(name.endswith("-delete") for name in disk.list(PATH))
    append(log, make_batch())
    await again.flush()
    disk.power_loss()
    third = opened(disk)
    assert (third.logs[KEY].topic_id, third.logs[KEY].end_offset) == (NEW, 1)


async def test_checkpoints_of_an_earlier_log_of_the_name_prove_nothing(disk: MemoryDisk) -> None:
    directory = await written(disk)
    commit(directory.logs[KEY], 3)
    await directory.checkpoint()
    directory.delete("t", 0)
    append(directory.create("t", 0, NEW), make_batch())
    disk.remove(FILE)
    again = opened(disk)
    assert (again.half_made, again.corrupt) == ({KEY: None}, {})


async def test_what_is_left_of_a_log_can_be_deleted(disk: MemoryDisk) -> None:
    await written(disk)
    disk.remove(FILE)
    again = opened(disk)
    assert again.holds(KEY)
    assert again.topic_id(KEY) is None
    again.delete("t", 0)
    assert not again.holds(KEY)
    assert not disk.exists(f"{PATH}/t-0")


# ------------------------------------------- what is durable has its topic id on disk before it


@pytest.mark.parametrize("batches", [0, 2])
async def test_recovery_brings_a_topic_id_to_disk_that_a_killed_process_left_unsynced(
    disk: MemoryDisk, batches: int
) -> None:
    directory = LogDirectory.open(disk, PATH, HandClock())  # not started: it syncs nothing
    log = directory.create("t", 0, OLD)
    for _ in range(batches):
        append(log, make_batch())
    disk.locks.clear()
    again = LogDirectory.open(disk, PATH, HandClock())
    log = again.logs[KEY]
    if batches:
        assert log.durable_offset == batches  # so a power loss must keep it
    else:
        again.start()
        append(log, make_batch())
        await again.flush()
        assert log.durable_offset == 1
    disk.power_loss()
    assert opened(disk).logs[KEY].topic_id == OLD


async def test_a_relaxed_log_acknowledges_nothing_before_its_topic_id_is_on_disk(
    disk: MemoryDisk,
) -> None:
    directory = opened(disk, RELAXED)
    log = directory.create("t", 0, OLD)
    append(log, make_batch())
    assert log.durable_offset == 0
    ticket = log.begin_sync()
    append(log, make_batch())
    assert log.durable_offset == 0
    for path in ticket.paths:
        disk.sync_now(path)
    log.finish_sync(ticket)
    assert log.durable_offset == 1
    await directory.flush()  # a group that the second batch has asked for
    assert log.durable_offset == 2
    append(log, make_batch())
    assert log.durable_offset == 3  # relaxed from now on
    assert log.synced_offset == 2
    disk.power_loss()
    assert opened(disk).logs[KEY].topic_id == OLD


async def test_a_relaxed_log_that_is_truncated_before_its_first_sync_is_on_disk_then(
    disk: MemoryDisk,
) -> None:
    log = opened(disk, RELAXED).create("t", 0, OLD)
    for _ in range(2):
        append(log, make_batch())
    log.truncate_to(1)
    append(log, make_batch())
    assert log.durable_offset == 2
    disk.power_loss()
    assert opened(disk).logs[KEY].topic_id == OLD
