"""One group at a time, and nothing acknowledged after a failed one."""

import asyncio
import errno
from typing import Any

import pytest

from stele.ids import TopicPartition
from storage.config import LogConfig
from storage.errors import StorageError
from storage.group_commit import GroupCommit
from storage.log import PartitionLog
from storage.log_types import SyncTicket
from storage.opening import open_log
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock


class Owner:
    """Passes a log's calls on to a group commit."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.failures: list[OSError] = []
        self.commit = GroupCommit(disk, HandClock(), self.failures.append)

    def dirty(self, log: PartitionLog) -> None:
        self.commit.add(log)

    def unflushed(self, log: PartitionLog) -> None:
        pass

    def failed(self, log: PartitionLog, error: OSError) -> None:
        raise error

    def refused(self, log: PartitionLog, size_bytes: int) -> None:
        raise AssertionError(size_bytes)

    def set_aside(self, paths: list[str]) -> None:
        raise AssertionError(paths)

    def lower_checkpoints(self, log: PartitionLog, offset: int) -> None:
        pass


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def owner(disk: MemoryDisk) -> Owner:
    return Owner(disk)


def open_logs(disk: MemoryDisk, owner: Owner, count: int, **config: Any) -> list[PartitionLog]:
    return [
        open_log(
            disk,
            f"/d/t-{n}",
            LogConfig(**config),
            HandClock(),
            key=TopicPartition("t", n),
            owner=owner,
        )
        for n in range(count)
    ]


async def until(condition: asyncio.Event) -> None:
    await asyncio.wait_for(condition.wait(), 5)


async def test_one_group_covers_all_that_was_written_before(disk: MemoryDisk, owner: Owner) -> None:
    logs = open_logs(disk, owner, 3)
    await owner.commit.flush()
    disk.synced.clear()
    for log in logs:
        append(log, make_batch(2))
        append(log, make_batch(2))
    await owner.commit.flush()
    assert [log.durable_offset for log in logs] == [4, 4, 4]
    assert disk.synced == [[f"/d/t-{n}/{0:020d}.log" for n in range(3)]]


async def test_the_next_group_gathers_while_one_is_on_its_way(
    disk: MemoryDisk, owner: Owner
) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    disk.synced.clear()
    disk.gate = asyncio.Event()
    append(log, make_batch())
    await asyncio.sleep(0.01)
    for _ in range(5):
        append(log, make_batch())
        await asyncio.sleep(0)
    assert len(disk.synced) == 1
    assert log.durable_offset == 0
    told: list[int] = []
    done = asyncio.Event()

    def on_durable(changed: PartitionLog) -> None:
        told.append(changed.durable_offset)
        if changed.durable_offset == 6:
            done.set()

    log.on_durable = on_durable
    disk.gate.set()
    await until(done)
    assert told == [1, 6]
    assert len(disk.synced) == 2


async def test_a_truncation_voids_the_group_on_its_way(disk: MemoryDisk, owner: Owner) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    append(log, make_batch(5))
    append(log, make_batch(5))
    disk.gate = asyncio.Event()
    flushing = asyncio.ensure_future(owner.commit.flush())
    await asyncio.sleep(0.01)
    log.truncate_to(5)
    append(log, make_batch(20))
    disk.gate.set()
    disk.gate = None
    await flushing
    assert log.durable_offset in (5, 25)
    await owner.commit.flush()
    assert log.durable_offset == 25


async def test_what_two_rolls_around_one_group_require_is_on_disk(
    disk: MemoryDisk, owner: Owner
) -> None:
    """The second roll requires the directory while a sync of it is under way, which began too
    early."""
    (log,) = open_logs(disk, owner, 1, segment_bytes=200)
    await owner.commit.flush()
    while len(log.segment_bases) < 2:
        append(log, make_batch())
    disk.gate = asyncio.Event()
    first = asyncio.ensure_future(owner.commit.flush())
    await asyncio.sleep(0.01)
    while len(log.segment_bases) < 3:
        append(log, make_batch())
    disk.gate.set()
    await first
    await owner.commit.flush()
    promised = log.durable_offset
    assert promised == log.end_offset
    disk.power_loss()
    (again,) = open_logs(disk, owner, 1, segment_bytes=200)
    assert again.end_offset == promised


async def test_after_a_failed_sync_nothing_is_acknowledged(disk: MemoryDisk, owner: Owner) -> None:
    first, second = open_logs(disk, owner, 2)
    await owner.commit.flush()
    disk.sync_error = errno.EIO
    append(first, make_batch())
    with pytest.raises(StorageError, match="a sync failed"):
        await owner.commit.flush()
    assert [error.errno for error in owner.failures] == [errno.EIO]
    disk.sync_error = None  # the next one would succeed, and lie
    disk.synced.clear()
    append(second, make_batch())
    append(first, make_batch())
    with pytest.raises(StorageError):
        await owner.commit.flush()
    await asyncio.sleep(0.01)
    assert disk.synced == []
    assert (first.durable_offset, second.durable_offset) == (0, 0)


async def test_a_listener_that_raises_does_not_stop_the_others(
    disk: MemoryDisk, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = open_logs(disk, owner, 2)
    await owner.commit.flush()

    def broken(log: PartitionLog) -> None:
        raise ZeroDivisionError

    first.on_durable = broken
    append(first, make_batch())
    append(second, make_batch())
    await owner.commit.flush()
    assert (first.durable_offset, second.durable_offset) == (1, 1)
    assert "ZeroDivisionError" in caplog.text


async def test_a_relaxed_log_is_synced_every_so_many_records(
    disk: MemoryDisk, owner: Owner
) -> None:
    (log,) = open_logs(disk, owner, 1, flush_messages=10)
    await owner.commit.flush()
    disk.synced.clear()
    append(log, make_batch(9))
    await owner.commit.flush()
    assert disk.synced == []
    assert (log.durable_offset, log.synced_offset) == (9, 0)
    append(log, make_batch(1))
    await owner.commit.flush()
    assert log.synced_offset == 10


async def test_a_file_that_retention_removed_is_no_failure(disk: MemoryDisk, owner: Owner) -> None:
    (log,) = open_logs(disk, owner, 1, segment_bytes=200)
    for _ in range(10):
        append(log, make_batch())
    log.advance_start_offset(9)
    log.remove_dead_segments()
    await owner.commit.flush()
    assert owner.failures == []
    assert log.durable_offset == 10


async def test_a_cancelled_group_is_a_failed_one(disk: MemoryDisk, owner: Owner) -> None:
    (log,) = open_logs(disk, owner, 1)
    disk.gate = asyncio.Event()
    append(log, make_batch())
    await asyncio.sleep(0.01)
    (task,) = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    task.cancel()
    await asyncio.sleep(0.01)
    assert len(owner.failures) == 1
    assert log.durable_offset == 0


async def test_the_time_of_each_sync_is_reported(disk: MemoryDisk, owner: Owner) -> None:
    times: list[float] = []
    owner.commit.on_synced = times.append
    (log,) = open_logs(disk, owner, 1, flush_messages=1)
    await owner.commit.flush()
    before = len(times)
    append(log, make_batch())
    await owner.commit.flush()
    assert len(times) == before + 1
    assert times[-1] == 0.0  # the clock stands still


async def test_a_waiting_function_is_called_in_the_turn_of_the_result(
    disk: MemoryDisk, owner: Owner
) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    told: list[tuple[StorageError | None, int]] = []

    def flushed(error: StorageError | None) -> None:
        told.append((error, log.durable_offset))

    owner.commit.synced_then([log], flushed)
    assert told == [(None, 0)]  # everything is on disk already
    append(log, make_batch(3))
    owner.commit.synced_then([log], flushed)
    await owner.commit.flush()
    assert told[1:] == [(None, 3)]
    disk.sync_error = errno.EIO
    append(log, make_batch())
    owner.commit.synced_then([log], flushed)
    with pytest.raises(StorageError):
        await owner.commit.flush()
    owner.commit.synced_then([log], flushed)
    assert [isinstance(error, StorageError) for error, _ in told[2:]] == [True, True]


async def test_a_caller_waits_for_no_group_of_other_logs(disk: MemoryDisk, owner: Owner) -> None:
    slow, quick = open_logs(disk, owner, 2)
    await owner.commit.flush()
    slow_gate = disk.gate = asyncio.Event()
    groups = len(disk.synced)
    append(slow, make_batch())
    while len(disk.synced) == groups:  # noqa: ASYNC110 - the disk has no event for it
        await asyncio.sleep(0)
    disk.gate = None
    told: list[str] = []
    owner.commit.synced_then([slow], lambda _: told.append("slow"))
    append(slow, make_batch())
    owner.commit.synced_then([slow, quick], lambda _: told.append("slow again"))
    append(quick, make_batch())
    done = asyncio.Event()
    owner.commit.synced_then([quick], lambda _: done.set())
    owner.commit.synced_then([quick], lambda _: told.append("quick"))
    await until(done)
    assert told == ["quick"]
    assert (slow.durable_offset, quick.durable_offset) == (0, 1)
    slow_gate.set()
    await owner.commit.flush()
    assert told == ["quick", "slow", "slow again"]


async def test_a_waiting_function_is_called_once_when_the_disk_fails_elsewhere(
    disk: MemoryDisk, owner: Owner
) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    append(log, make_batch())
    told: list[StorageError | None] = []
    owner.commit.synced_then([log], told.append)
    owner.commit.fail(OSError(errno.EIO, "elsewhere"))
    await owner.commit.close()
    assert [isinstance(error, StorageError) for error in told] == [True]


async def test_groups_on_disk_are_counted(disk: MemoryDisk, owner: Owner) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    before = owner.commit.groups
    for _ in range(2):
        append(log, make_batch())
        await owner.commit.flush()
    assert owner.commit.groups == before + 2


def test_what_is_written_without_an_event_loop_is_synced_by_the_first_flush(
    disk: MemoryDisk, owner: Owner
) -> None:
    (log,) = open_logs(disk, owner, 1)
    append(log, make_batch())
    told: list[StorageError | None] = []

    async def flush() -> None:
        owner.commit.synced_then([log], told.append)
        assert told == []  # it is not on disk yet
        await owner.commit.flush()

    asyncio.run(flush())
    assert told == [None]
    assert log.durable_offset == 1


async def test_who_raises_when_told_keeps_it_from_nobody(
    disk: MemoryDisk, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()

    def broken(error: StorageError | None) -> None:
        raise ZeroDivisionError

    for _ in range(2):  # the next group comes, too
        append(log, make_batch())
        owner.commit.synced_then([log], broken)
        await asyncio.wait_for(owner.commit.flush(), 5)
    assert log.durable_offset == 2
    assert [each.getMessage() for each in caplog.records] == ["after a sync"] * 2
    append(log, make_batch())
    disk.sync_error = errno.EIO
    owner.commit.synced_then([log], broken)
    with pytest.raises(StorageError):
        await asyncio.wait_for(owner.commit.flush(), 5)


async def test_waiters_hear_that_the_disk_failed_elsewhere(disk: MemoryDisk, owner: Owner) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    append(log, make_batch())
    disk.gate = asyncio.Event()
    await asyncio.sleep(0.01)
    waiting = asyncio.ensure_future(owner.commit.flush())  # behind the group that is under way
    await asyncio.sleep(0)
    owner.commit.fail(OSError(errno.EIO, "elsewhere"))
    disk.gate.set()
    with pytest.raises(StorageError, match="elsewhere"):
        await asyncio.wait_for(waiting, 5)


async def test_a_member_that_cannot_begin_fails_alone(disk: MemoryDisk, owner: Owner) -> None:
    failed: list[Exception] = []

    class Broken:
        name = "broken"

        @property
        def unsynced_bytes(self) -> int:
            raise ZeroDivisionError

        def begin_sync(self) -> SyncTicket:
            raise ZeroDivisionError

        def finish_sync(self, ticket: SyncTicket) -> None:
            raise AssertionError

        def fail(self, error: Exception) -> None:
            failed.append(error)

    (log,) = open_logs(disk, owner, 1)
    owner.commit.add(Broken())
    append(log, make_batch())
    await owner.commit.flush()
    assert log.durable_offset == 1
    assert [type(error) for error in failed] == [ZeroDivisionError]
    assert owner.failures == []


async def test_a_group_that_cannot_begin_is_a_failed_one(
    disk: MemoryDisk, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(paths: object) -> None:
        raise ZeroDivisionError

    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    monkeypatch.setattr(disk, "sync", fail)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    append(log, make_batch())
    with pytest.raises(StorageError, match="did not begin"):
        await owner.commit.flush()
    assert len(owner.failures) == 1
    assert len(told) == 1
    await asyncio.wait_for(owner.commit.close(), 5)


async def test_closing_waits_for_the_group_that_is_under_way(
    disk: MemoryDisk, owner: Owner
) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    disk.gate = asyncio.Event()
    append(log, make_batch())
    await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(owner.commit.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    disk.gate.set()
    await asyncio.wait_for(closing, 5)
    assert log.durable_offset == 1


async def test_a_caller_that_gives_up_waiting_disturbs_no_sync(
    disk: MemoryDisk, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    (log,) = open_logs(disk, owner, 1)
    await owner.commit.flush()
    disk.gate = asyncio.Event()
    append(log, make_batch())
    giving_up = asyncio.ensure_future(owner.commit.flush())
    await asyncio.sleep(0)
    giving_up.cancel()
    disk.gate.set()
    await asyncio.wait_for(owner.commit.flush(), 5)
    assert (log.durable_offset, caplog.records) == (1, [])
