"""A checkpoint takes many turns of the event loop, and the logs change meanwhile."""

import asyncio
from collections.abc import Sequence

import pytest

from stele.ids import TopicPartition
from storage.checkpoints import MetaProperties, read_offsets
from storage.directory import LogDirectory
from storage.errors import CorruptLogError
from storage.formatted import format_directory
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import HandClock

PATH = "/data"


def told(disk: MemoryDisk, name: str) -> dict[TopicPartition, int]:
    return read_offsets(disk, f"{PATH}/{name}-offset-checkpoint")


@pytest.mark.parametrize("turns", range(24))
@pytest.mark.parametrize("change", ["truncated", "deleted", "made anew", "corrupt"])
async def test_no_checkpoint_claims_what_a_log_has_lost_meanwhile(
    change: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change comes after so many turns of the checkpoint. Each looks at one log, and each sync
    takes one."""
    disk = MemoryDisk()
    format_directory(disk, PATH, MetaProperties("c", 1, "d"))
    sync = disk.sync

    async def sync_later(paths: Sequence[str]) -> None:
        await asyncio.sleep(0)
        await sync(paths)

    monkeypatch.setattr("storage.offset_checkpoints.SLICE_STEPS", 1)
    directory = LogDirectory.open(disk, PATH, HandClock())
    directory.start()
    for partition in range(3):
        log = directory.create("t", partition, bytes(range(16)))
        for _ in range(5):
            append(log, make_batch())
        commit(log, 2)
    await directory.flush()
    await directory.checkpoint()
    for log in directory.logs.values():
        commit(log, 5)
    monkeypatch.setattr(disk, "sync", sync_later)
    checkpoint = asyncio.ensure_future(directory.checkpoint())
    for _ in range(turns):
        await asyncio.sleep(0)
    key = TopicPartition("t", 1)
    log, is_told = directory.logs[key], told(disk, "recovery-point")[key] == 5
    if change == "truncated":
        log.truncate_to(3)
        commit(log, 3)
    elif change == "corrupt":
        directory.mark_corrupt(*key, CorruptLogError("f", position=0, offset=0, reason="r"))
    else:
        directory.delete(*key)
        if change == "made anew":
            directory.create(*key, bytes(16))
    await checkpoint
    allowed: dict[str, set[int | None]] = {
        "truncated": {3} if is_told else {2, 3},
        "deleted": {5 if is_told else None},
        "made anew": {0} if is_told else {None, 0},
        "corrupt": {5 if is_told else 2},
    }
    for name in ("recovery-point", "replication"):
        held = told(disk, name)
        assert held.get(key) in allowed[change]
        assert [held[TopicPartition("t", other)] for other in (0, 2)] == [5, 5]
