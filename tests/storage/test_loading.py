"""Opening a log directory in turns of the event loop, and what an interruption leaves.

Every test stops the opening after each number of steps in turn. At no step may a stop, the end of
the process or a power loss cost anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from stele.ids import TopicPartition
from storage.checkpoints import MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.formatted import format_directory
from storage.steps import BATCHES_PER_TURN
from tests.support.batches import make_batch
from tests.support.counting import CountingDisk
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import HandClock

PATH = "/data"
TOPIC_ID = bytes(range(16))
KEYS = [TopicPartition("t", number) for number in range(3)]
CONFIG = LogConfig(segment_bytes=400)
RELAXED = LogConfig(segment_bytes=400, flush_messages=1000)
COUNT = 12

End = Callable[[MemoryDisk], None]


def process_ends(disk: MemoryDisk) -> None:
    disk.locks.clear()


def power_is_lost(disk: MemoryDisk) -> None:
    disk.power_loss()


def claimed(disk: MemoryDisk, config: LogConfig = CONFIG) -> LogDirectory:
    return LogDirectory.claim(disk, PATH, HandClock(), config)


async def filled(disk: MemoryDisk, *, cleanly: bool) -> None:
    """Logs with some segments and producers, closed cleanly or left as a lost process leaves
    them."""
    format_directory(disk, PATH, MetaProperties("cluster-a", 1, "dir-1"))
    directory = claimed(disk)
    await directory.load()
    directory.start()
    for key in KEYS:
        log = directory.create(key.topic, key.partition, TOPIC_ID)
        for number in range(COUNT):
            append(log, make_batch(producer=(4, 0, number)), epoch=number // 5)
        commit(log, COUNT - 2)
    await directory.flush()
    await directory.checkpoint()
    if cleanly:
        await directory.close(broker_epoch=55)
    disk.power_loss()


def is_whole(directory: LogDirectory) -> None:
    assert not directory.corrupt
    assert sorted(directory.logs) == KEYS
    for log in directory.logs.values():
        assert (log.start_offset, log.end_offset, log.recovered_high_watermark) == (
            0,
            COUNT,
            COUNT - 2,
        )
        assert log.epochs.entries == [(0, 0), (1, 5), (2, 10)]
        state = log.producers.get(4)
        assert state is not None
        assert state.last_sequence == COUNT - 1


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("end", [process_ends, power_is_lost])
async def test_an_opening_that_is_cut_short_leaves_everything_as_it_was(
    cleanly: bool, end: End
) -> None:
    steps = 0
    found_clean: list[bool] = []
    while True:
        disk = MemoryDisk()
        await filled(disk, cleanly=cleanly)
        loading = claimed(disk).loading()
        if sum(1 for _, _ in zip(range(steps), loading, strict=False)) < steps:
            break
        end(disk)
        loading.close()
        again = claimed(disk)
        await again.load()
        is_whole(again)
        assert again.previous_broker_epoch == (55 if again.clean_shutdown else -1)
        found_clean.append(again.clean_shutdown)
        steps += 1
    assert steps > len(KEYS)
    # The mark is removed last, when all logs are open.
    assert found_clean[:-1] == [cleanly] * (steps - 1)


@pytest.mark.parametrize("cleanly", [True, False])
async def test_a_start_that_is_broken_off_keeps_the_directory_as_clean_as_it_was(
    cleanly: bool,
) -> None:
    turns = 0
    is_loaded = False
    while not is_loaded:
        disk = MemoryDisk()
        await filled(disk, cleanly=cleanly)
        directory = claimed(disk)
        task = asyncio.ensure_future(directory.load())
        for _ in range(turns):
            await asyncio.sleep(0)
        is_loaded = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await directory.abandon()
        assert not disk.locks
        disk.power_loss()
        again = claimed(disk)
        await again.load()
        is_whole(again)
        assert again.clean_shutdown == cleanly
        assert again.previous_broker_epoch == (55 if cleanly else -1)
        turns += 1
    assert turns > len(KEYS)


@pytest.mark.parametrize("is_reported", [True, False])
async def test_a_tail_that_was_only_in_the_page_cache_is_on_disk_behind_the_mark(
    is_reported: bool,
) -> None:
    disk = MemoryDisk()
    format_directory(disk, PATH, MetaProperties("cluster-a", 1, "dir-1"))
    directory = claimed(disk, RELAXED)
    await directory.load()
    log = directory.create("t", 0, TOPIC_ID)
    await directory.flush()
    for _ in range(COUNT):
        append(log, make_batch())
    assert log.synced_offset < log.durable_offset == COUNT
    process_ends(disk)
    recovered = claimed(disk, RELAXED)
    await recovered.load()
    await recovered.close(is_reported=is_reported)
    disk.power_loss()
    again = claimed(disk, RELAXED)
    await again.load()
    assert again.clean_shutdown == is_reported
    (log,) = again.logs.values()
    assert log.end_offset == COUNT
    assert not again.corrupt


async def test_no_turn_of_an_opening_grows_with_a_log_or_with_their_number() -> None:
    for logs, batches in ((1, 40 * BATCHES_PER_TURN), (200, 1)):
        disk = CountingDisk()
        format_directory(disk, PATH, MetaProperties("cluster-a", 1, "dir-1"))
        directory = LogDirectory.open(disk, PATH, HandClock())
        for number in range(logs):
            log = directory.create("t", number, TOPIC_ID)
            for sequence in range(batches):
                append(log, make_batch(producer=(4, 0, sequence)))
        await directory.flush()
        process_ends(disk)
        batch_bytes = len(make_batch(producer=(4, 0, 0)))
        turns, most_calls = 0, 0
        task = asyncio.ensure_future(claimed(disk, LogConfig()).load())
        while not task.done():
            turn = disk.fresh()
            await asyncio.sleep(0)
            turns += 1
            # The helper process does all syncs, and warms everything that is read.
            most_calls = max(most_calls, turn.total_calls - turn.calls["sync of one path"])
        await task
        assert turns > max(logs, batches // BATCHES_PER_TURN)
        assert most_calls < 60, (logs, batches)
        assert logs > 1 or any(size > batches * batch_bytes // 2 for _, _, size in disk.warmed)


async def test_a_sync_that_fails_stops_the_opening_and_gives_the_lock_back() -> None:
    disk = MemoryDisk()
    await filled(disk, cleanly=False)
    disk.sync_error = 5
    directory = claimed(disk)
    with pytest.raises(Exception, match="cannot be opened"):
        await directory.load()
    await directory.abandon()
    assert not disk.locks
