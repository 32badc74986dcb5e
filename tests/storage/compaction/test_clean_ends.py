"""How far a log is compacted, and up to where tombstones are gone, as the directory remembers."""

from __future__ import annotations

from stele.ids import TopicPartition
from storage.checkpoints import CLEANER_OFFSET_FILE, DROPPED_END_FILE, MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.formatted import format_directory
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock

TOPIC_ID = bytes(15) + b"\1"
PATH = "/d/data"


def opened(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, PATH, HandClock(), LogConfig())


def made(disk: MemoryDisk) -> tuple[LogDirectory, PartitionLog]:
    format_directory(disk, PATH, MetaProperties("c", 1, "d"))
    directory = opened(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for _ in range(20):
        append(log, make_batch())
    return directory, log


async def test_it_survives_a_loss_of_power_in_kafkas_file() -> None:
    disk = MemoryDisk()
    directory, log = made(disk)

    await directory.flush()
    await directory.checkpoint_clean_end(log, 7, log.truncation_generation)

    assert disk.read_file(f"{PATH}/{CLEANER_OFFSET_FILE}") == b"0\n1\nt 0 7\n"
    disk.power_loss()
    again = opened(disk)
    assert again.clean_end(again.logs[TopicPartition("t", 0)]) == 7


async def test_a_truncation_lowers_it_and_one_that_came_meanwhile_wins() -> None:
    disk = MemoryDisk()
    directory, log = made(disk)

    await directory.flush()
    generation = log.truncation_generation
    await directory.checkpoint_clean_end(log, 15, generation)
    log.truncate_to(9)
    assert directory.clean_end(log) == 9
    await directory.checkpoint_clean_end(log, 15, generation)
    assert directory.clean_end(log) == 9


async def test_a_new_log_of_the_same_name_is_not_clean() -> None:
    disk = MemoryDisk()
    directory, log = made(disk)

    await directory.flush()
    await directory.checkpoint_clean_end(log, 15, log.truncation_generation)
    directory.delete("t", 0)
    new = directory.create("t", 0, TOPIC_ID)
    assert directory.clean_end(new) == 0
    await directory.checkpoint_clean_end(log, 17, log.truncation_generation)
    assert directory.clean_end(new) == 0


async def test_the_end_of_dropped_tombstones_survives_a_loss_of_power() -> None:
    disk = MemoryDisk()
    directory, log = made(disk)

    await directory.flush()
    log.dropped_end = 7
    assert directory.durable_dropped_end(log) == 0
    await directory.persist_start_offsets()
    assert directory.durable_dropped_end(log) == 7

    assert disk.read_file(f"{PATH}/{DROPPED_END_FILE}") == b"0\n1\nt 0 7\n"
    disk.power_loss()
    again = opened(disk)
    assert again.logs[TopicPartition("t", 0)].dropped_end == 7
    assert again.durable_dropped_end(again.logs[TopicPartition("t", 0)]) == 0, "not synced by it"


async def test_a_log_that_is_cut_lacks_only_tombstones_below_its_end() -> None:
    disk = MemoryDisk()
    directory, log = made(disk)

    await directory.flush()
    log.dropped_end = 15
    await directory.persist_start_offsets()
    log.truncate_to(9)
    assert (log.dropped_end, directory.durable_dropped_end(log)) == (9, 9)
    log.reset_to(4)
    assert (log.dropped_end, directory.durable_dropped_end(log)) == (0, 0)
