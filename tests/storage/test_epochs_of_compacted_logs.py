"""The leader epochs of logs whose batches a compaction has removed.

The leader of epoch 3 began at offset 25. Its first record there is compacted away: the batches of
epoch 2 end at 25, and the first one of epoch 3 that is left begins at 29.
"""

import pytest

from stele.ids import TopicPartition
from stele.wire.batch import BatchBuilder
from storage.checkpoints import LEADER_EPOCH_FILE, MetaProperties
from storage.directory import LogDirectory
from storage.formatted import format_directory
from storage.leader_epochs import EpochEndOffset
from storage.log import PartitionLog
from tests.support.storage import MemoryDisk, commit
from tests.support.timing import HandClock

PATH = "/data"
KEY = TopicPartition("t", 0)
BATCHES = ((2, 0, 20), (2, 20, 25), (3, 29, 31), (3, 31, 32))  # epoch, base offset, end


def open_directory(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, PATH, HandClock())
    directory.start()
    return directory


def take(log: PartitionLog, epoch: int, base: int, end: int) -> None:
    builder = BatchBuilder(base)
    for offset in range(base, end):
        builder.append(b"%d" % offset, b"v", timestamp_ms=0)
    log.append_as_follower(builder.build(leader_epoch=epoch))


async def replicated(disk: MemoryDisk) -> LogDirectory:
    """A follower's copy of the compacted log."""
    format_directory(disk, PATH, MetaProperties("c", 1, "d"))
    directory = open_directory(disk)
    log = directory.create(*KEY, bytes(range(16)))
    for batch in BATCHES:
        take(log, *batch)
    await directory.flush()
    commit(log, 32)
    return directory


async def test_an_epoch_counts_from_the_end_of_the_batch_before_its_first_one() -> None:
    """A follower of epoch 2 that has a record of its own at offset 25 must cut it."""
    directory = await replicated(MemoryDisk())
    log = directory.logs[KEY]
    assert log.epochs.entries == [(2, 0), (3, 25)]
    assert log.end_offset_for_epoch(2) == EpochEndOffset(2, 25)


@pytest.mark.parametrize("lost", ["recovery-point-offset-checkpoint", f"{KEY}/{LEADER_EPOCH_FILE}"])
@pytest.mark.parametrize("is_clean", [False, True])
async def test_the_loss_of_a_file_moves_no_epoch_behind_records_of_an_earlier_one(
    lost: str, *, is_clean: bool
) -> None:
    disk = MemoryDisk()
    directory = await replicated(disk)
    await directory.checkpoint()
    if is_clean:
        await directory.close()
    disk.remove(f"{PATH}/{lost}")
    disk.locks.clear()
    again = open_directory(disk)
    assert not again.corrupt
    assert again.logs[KEY].epochs.entries == [(2, 0), (3, 25)]


@pytest.mark.parametrize(("told", "believed"), [(25, 25), (27, 27), (29, 29), (24, 25), (30, 25)])
async def test_the_file_is_believed_where_it_fits_the_batches(told: int, believed: int) -> None:
    disk = MemoryDisk()
    directory = await replicated(disk)
    await directory.checkpoint()
    disk.replace_file_now(f"{PATH}/{KEY}/{LEADER_EPOCH_FILE}", b"0\n2\n2 0\n3 %d\n" % told)
    disk.remove(f"{PATH}/recovery-point-offset-checkpoint")
    disk.locks.clear()
    assert open_directory(disk).logs[KEY].epochs.entries == [(2, 0), (3, believed)]
