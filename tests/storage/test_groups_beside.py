"""A large or slow group of syncs keeps no other log waiting."""

import asyncio
import errno
import itertools
from collections.abc import Sequence

import pytest

from storage.errors import StorageError
from storage.group_commit import (
    BESIDE_BYTES,
    BESIDE_MEMBERS,
    GROUP_BYTES,
    PATIENCE_S,
    SLICE_MEMBERS,
    SLOW_S,
    GroupCommit,
)
from storage.log_types import SyncTicket
from tests.support.storage import MemoryDisk
from tests.support.timing import HandClock

A_WHILE_S = PATIENCE_S * 5
SLOW_MS = round(SLOW_S * 1000) + 1


class SlowDisk(MemoryDisk):
    """A sync ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: list[tuple[list[str], asyncio.Future[None]]] = []

    async def sync(self, paths: Sequence[str]) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.under_way.append((list(paths), ended))
        await ended

    @property
    def names(self) -> list[list[str]]:
        return [paths for paths, _ in self.under_way]

    async def end(self, number: int, error: OSError | None = None) -> None:
        _, ended = self.under_way.pop(number)
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)
        await asyncio.sleep(0.001)


class Log:
    def __init__(self, name: str, told: list[str], records: int = 1, size: int = 0) -> None:
        self.name = name
        self.unsynced_bytes = size
        self._told = told
        self._records = records

    def begin_sync(self) -> SyncTicket:
        return SyncTicket((self.name,), 0, 0, 0, self._records)

    def finish_sync(self, ticket: SyncTicket) -> None:
        self._told.append(self.name)

    def fail(self, error: Exception) -> None:
        raise error


class CountedClock(HandClock):
    reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return super().monotonic()


class Groups:
    """A group commit whose first group is under way: that of the log ``slow``."""

    def __init__(self) -> None:
        self.disk = SlowDisk()
        self.failures: list[OSError] = []
        self.clock = CountedClock()
        self.commit = GroupCommit(self.disk, self.clock, self.failures.append)
        self.told: list[str] = []

    def log(self, name: str, records: int = 1, size: int = 0) -> Log:
        return Log(name, self.told, records, size)

    async def begin(self, *logs: Log) -> None:
        for log in logs:
            self.commit.add(log)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert self.disk.names[-1] == [log.name for log in logs]


@pytest.fixture
async def groups() -> Groups:
    return Groups()


async def test_a_log_does_not_wait_for_a_slow_group(groups: Groups) -> None:
    await groups.begin(groups.log("slow"))
    groups.commit.add(groups.log("other"))
    await asyncio.sleep(0)
    assert groups.disk.names == [["slow"]]  # it may be quick
    await asyncio.sleep(A_WHILE_S)
    assert groups.disk.names == [["slow"], ["other"]]
    await groups.disk.end(1)
    assert groups.told == ["other"]
    await groups.disk.end(0)
    assert groups.told == ["other", "slow"]
    assert groups.commit.groups == 2


async def test_there_is_no_group_beside_a_quick_one(groups: Groups) -> None:
    await groups.begin(groups.log("quick"))
    groups.commit.add(groups.log("other"))
    groups.commit.add(groups.log("third"))
    await groups.disk.end(0)
    assert groups.disk.names == [["other", "third"]]


async def test_a_log_is_in_one_group_at_a_time(groups: Groups) -> None:
    slow = groups.log("slow")
    await groups.begin(slow)
    groups.commit.add(slow)
    await asyncio.sleep(A_WHILE_S)
    assert groups.disk.names == [["slow"]]
    await groups.disk.end(0)
    assert groups.disk.names == [["slow"]]  # once more
    await groups.disk.end(0)
    assert groups.told == ["slow", "slow"]


async def test_one_small_group_is_beside_the_first(groups: Groups) -> None:
    await groups.begin(groups.log("slow"))
    others = [f"other-{number}" for number in range(BESIDE_MEMBERS + 1)]
    for name in others:
        groups.commit.add(groups.log(name))
    await asyncio.sleep(A_WHILE_S)
    assert groups.disk.names == [["slow"], others[:BESIDE_MEMBERS]]
    await groups.disk.end(0)  # the first: the next one covers all that is left
    assert groups.disk.names == [others[:BESIDE_MEMBERS], others[BESIDE_MEMBERS:]]


async def test_the_group_beside_a_slow_one_has_those_with_the_least_to_sync(
    groups: Groups,
) -> None:
    """So a polite client's log does not wait behind those of a greedy one."""
    await groups.begin(groups.log("slow"))
    for number in range(BESIDE_MEMBERS):
        groups.commit.add(groups.log(f"greedy-{number}", size=BESIDE_BYTES * 2 // 3))
    groups.commit.add(groups.log("polite", size=100))
    await asyncio.sleep(A_WHILE_S)
    assert groups.disk.names == [["slow"], ["polite", "greedy-0"]]


async def test_after_a_slow_group_the_next_one_is_bounded(groups: Groups) -> None:
    """A log with little to sync is in it. The large ones come in their turns."""
    await groups.begin(groups.log("slow"))
    groups.clock.now_ms -= 1_000_000  # so long no group begins beside it
    for number in range(4):
        groups.commit.add(groups.log(f"greedy-{number}", size=GROUP_BYTES))
    groups.commit.add(groups.log("polite", size=100))
    groups.clock.now_ms += 1_000_000 + SLOW_MS
    await groups.disk.end(0)
    assert groups.disk.names == [["greedy-0", "polite"]]
    groups.clock.now_ms += SLOW_MS
    await groups.disk.end(0)
    assert groups.disk.names == [["greedy-1", "greedy-2"]]
    groups.clock.now_ms += SLOW_MS
    await groups.disk.end(0)
    assert groups.disk.names == [["greedy-3"]]


async def test_a_log_whose_size_is_not_known_stops_no_other(groups: Groups) -> None:
    failed: list[Exception] = []

    class Broken(Log):
        @property
        def unsynced_bytes(self) -> int:
            raise ZeroDivisionError

        @unsynced_bytes.setter
        def unsynced_bytes(self, size: int) -> None: ...

        def begin_sync(self) -> SyncTicket:
            raise ZeroDivisionError

        def fail(self, error: Exception) -> None:
            failed.append(error)

    await groups.begin(groups.log("slow"))
    groups.commit.add(Broken("broken", groups.told))
    groups.commit.add(groups.log("other"))
    await asyncio.sleep(A_WHILE_S)
    assert groups.disk.names == [["slow"], ["other"]]
    assert [type(error) for error in failed] == [ZeroDivisionError]


async def test_a_quick_disk_has_one_group_of_everything(groups: Groups) -> None:
    await groups.begin(groups.log("quick"))
    names = [f"large-{number}" for number in range(4)]
    for name in names:
        groups.commit.add(groups.log(name, size=GROUP_BYTES))
    await groups.disk.end(0)
    assert groups.disk.names == [names]


async def test_logs_that_must_wait_cost_no_turns(groups: Groups) -> None:
    """One timer for all that come, and none while no further group may begin."""
    await groups.begin(groups.log("slow"))
    before = groups.clock.reads
    for number in range(BESIDE_MEMBERS + 1):
        groups.commit.add(groups.log(f"other-{number}"))
    assert groups.clock.reads == before + 1
    await asyncio.sleep(A_WHILE_S)
    assert len(groups.disk.names) == 2
    before = groups.clock.reads
    groups.commit.add(groups.log("later"))
    await asyncio.sleep(A_WHILE_S)
    assert groups.clock.reads == before
    assert len(groups.disk.names) == 2


async def test_the_next_group_beside_a_slow_one_begins_in_time(groups: Groups) -> None:
    await groups.begin(groups.log("slow"))
    other = groups.log("other")
    for _ in range(3):
        groups.commit.add(other)
        await asyncio.sleep(A_WHILE_S)
        assert groups.disk.names == [["slow"], ["other"]]
        await groups.disk.end(1)
    assert groups.told == ["other"] * 3


async def test_who_waits_for_everything_waits_for_both(groups: Groups) -> None:
    await groups.begin(groups.log("slow"))
    groups.commit.add(groups.log("other"))
    flushing = asyncio.ensure_future(groups.commit.flush())
    await asyncio.sleep(A_WHILE_S)
    later = groups.log("later")
    groups.commit.add(later)
    await groups.disk.end(1)
    assert not flushing.done()
    await groups.disk.end(0)
    assert groups.disk.names == [["later"]]  # which was written after the call
    await asyncio.wait_for(flushing, 1)


async def test_a_log_that_is_written_without_a_pause_keeps_nobody_waiting(groups: Groups) -> None:
    busy = groups.log("busy")
    await groups.begin(busy)
    flushing = asyncio.ensure_future(groups.commit.flush())
    await asyncio.sleep(0)
    groups.commit.add(busy)
    await groups.disk.end(0)
    assert groups.disk.names == [["busy"]]
    await asyncio.wait_for(flushing, 1)


async def test_a_failure_voids_the_group_beside(groups: Groups) -> None:
    await groups.begin(groups.log("slow"))
    groups.commit.add(groups.log("other"))
    flushing = asyncio.ensure_future(groups.commit.flush())
    await asyncio.sleep(A_WHILE_S)
    await groups.disk.end(0, OSError(errno.EIO, "broken"))
    with pytest.raises(StorageError, match="broken"):
        await flushing
    closing = asyncio.ensure_future(groups.commit.close())
    await asyncio.sleep(0.001)
    assert not closing.done()
    await groups.disk.end(0)
    assert groups.told == []
    assert len(groups.failures) == 1
    await asyncio.wait_for(closing, 1)


async def test_who_waits_for_a_deleted_log_waits_no_more(groups: Groups) -> None:
    deleted = groups.log("deleted")
    groups.commit.add(deleted)
    flushing = asyncio.ensure_future(groups.commit.flush())
    await asyncio.sleep(0)
    groups.commit.remove(deleted)
    await asyncio.sleep(0.001)
    for _ in groups.disk.under_way:
        await groups.disk.end(0)
    await asyncio.wait_for(flushing, 1)


async def test_who_waits_at_the_end_hears_of_it(groups: Groups) -> None:
    slow = groups.log("slow")
    await groups.begin(slow)
    groups.commit.add(slow)
    flushing = asyncio.ensure_future(groups.commit.flush())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(groups.commit.close())
    with pytest.raises(StorageError, match="closed"):
        await asyncio.wait_for(flushing, 1)
    await groups.disk.end(0)
    await asyncio.wait_for(closing, 1)
    assert groups.disk.names == []


async def test_few_records_are_told_before_many(groups: Groups) -> None:
    counts = {"a": 500, "b": 1, "c": 64, "d": 2}
    for name, records in counts.items():
        groups.commit.add(groups.log(name, records))
    await asyncio.sleep(0.001)
    await groups.disk.end(0)
    assert groups.told == ["b", "d", "c", "a"]


async def test_a_large_group_is_told_in_slices(groups: Groups) -> None:
    """Between two slices the loop does other work, and the next group begins."""
    number = SLICE_MEMBERS * 7 // 2
    logs = [groups.log(str(number)) for number in range(number)]
    for log in logs:
        groups.commit.add(log)
    await asyncio.sleep(0.001)
    _, ended = groups.disk.under_way.pop()
    ended.set_result(None)
    groups.commit.add(groups.log("next"))
    flushing = asyncio.ensure_future(groups.commit.flush())
    seen: list[int] = []
    while len(groups.told) < number:
        await asyncio.sleep(0)
        seen.append(len(groups.told))
    assert max(b - a for a, b in itertools.pairwise(seen)) <= SLICE_MEMBERS
    assert len(set(seen) - {0}) == 4
    assert groups.disk.names == [["next"]]
    await groups.disk.end(0)
    await asyncio.wait_for(flushing, 1)
    await asyncio.wait_for(groups.commit.close(), 1)


async def test_a_failure_between_two_slices_stops_the_rest(groups: Groups) -> None:
    number = 2 * SLICE_MEMBERS
    for log in [groups.log(str(number)) for number in range(number)]:
        groups.commit.add(log)
    await asyncio.sleep(0.001)
    _, ended = groups.disk.under_way.pop()
    ended.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert groups.told
    groups.commit.fail(OSError(errno.EIO, "elsewhere"))
    told = len(groups.told)
    assert told < number
    await asyncio.wait_for(groups.commit.close(), 1)
    assert len(groups.told) == told
