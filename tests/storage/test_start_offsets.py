"""Log start offsets and dropped ends on disk: one that is called durable survives a power loss in
all cases."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from storage.checkpoints import DROPPED_END_FILE, LOG_START_FILE, MetaProperties, decode_offsets
from storage.directory import LogDirectory
from storage.formatted import format_directory
from storage.log import PartitionLog
from storage.offset_checkpoints import OffsetCheckpoints
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import HandClock

PATH = "/data"
STARTS = f"{PATH}/{LOG_START_FILE}"
DROPPED_ENDS = f"{PATH}/{DROPPED_END_FILE}"
TOPIC_ID = bytes(range(16))
RECORDS = 9


@pytest.fixture
def disk() -> MemoryDisk:
    return formatted()


def formatted() -> MemoryDisk:
    disk = MemoryDisk()
    format_directory(disk, PATH, MetaProperties("cluster-a", 1, "dir-1"))
    return disk


def open_directory(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, PATH, HandClock())
    directory.start()
    return directory


async def make_log(directory: LogDirectory, partition: int = 0) -> PartitionLog:
    """Create a log with committed records. Its epochs are on disk."""
    log = directory.create("t", partition, TOPIC_ID)
    for _ in range(RECORDS):
        append(log, make_batch())
    await directory.flush()
    commit(log, RECORDS)
    await directory.checkpoint()
    return log


def kept(disk: MemoryDisk, log: PartitionLog, path: str = STARTS) -> int:
    """The start of the log after a power loss, or its dropped end."""
    inode = disk.durable_inodes.get(path)
    return decode_offsets(inode.durable.decode(), path).get(log.key, 0) if inode else 0


class Syncs:
    """The syncs of a disk, which wait until the test lets them through one by one."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        disk.gate = asyncio.Event()

    async def let_through(self) -> None:
        assert self._disk.gate is not None
        self._disk.gate.set()
        self._disk.gate = asyncio.Event()
        await settle()

    def open(self) -> None:
        assert self._disk.gate is not None
        self._disk.gate.set()
        self._disk.gate = None


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_start_is_durable_when_the_entry_of_its_file_is(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    log = await make_log(directory)
    log.advance_start_offset(5)
    syncs = Syncs(disk)
    writing = asyncio.ensure_future(directory.persist_start_offsets())
    await settle()
    assert disk.synced[-1] == [f"{STARTS}.new"]
    await syncs.let_through()
    assert disk.synced[-1] == [PATH], "the file is in its place, and the place not on disk"
    assert directory.durable_start_offset(log) == 0
    await syncs.let_through()
    await writing
    assert directory.durable_start_offset(log) == kept(disk, log) == 5


async def test_what_was_durable_above_a_truncation_makes_nothing_durable_below(
    disk: MemoryDisk,
) -> None:
    directory = open_directory(disk)
    log = await make_log(directory)
    log.advance_start_offset(9)
    log.dropped_end = 9
    await directory.persist_start_offsets()
    assert (directory.durable_start_offset(log), directory.durable_dropped_end(log)) == (9, 9)
    log.truncate_to(5)
    assert (log.start_offset, kept(disk, log), kept(disk, log, DROPPED_ENDS)) == (5, 5, 5)
    for _ in range(3):
        append(log, make_batch())
    log.advance_start_offset(7)
    log.dropped_end = 7
    syncs = Syncs(disk)
    writing = asyncio.ensure_future(directory.persist_start_offsets())
    await settle()
    await syncs.let_through()
    assert (kept(disk, log), kept(disk, log, DROPPED_ENDS)) == (5, 5), "a power loss now"
    assert (directory.durable_start_offset(log), directory.durable_dropped_end(log)) == (5, 5)
    syncs.open()
    await writing
    assert (directory.durable_start_offset(log), directory.durable_dropped_end(log)) == (7, 7)


async def test_a_write_that_was_cancelled_promises_nothing_to_the_next(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    log = await make_log(directory)
    log.advance_start_offset(5)
    syncs = Syncs(disk)
    writing = asyncio.ensure_future(directory.persist_start_offsets())
    await settle()
    await syncs.let_through()
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    syncs.open()
    await directory.persist_start_offsets()
    assert directory.durable_start_offset(log) == 5
    disk.power_loss()
    again = open_directory(disk).get("t", 0)
    assert again is not None
    assert again.start_offset == 5


async def test_a_start_that_a_killed_process_has_written_is_written_for_good(
    disk: MemoryDisk,
) -> None:
    """It finds the file although its directory entry never reached the disk."""
    directory = open_directory(disk)
    log = await make_log(directory)
    log.advance_start_offset(5)
    syncs = Syncs(disk)
    writing = asyncio.ensure_future(directory.persist_start_offsets())
    await settle()
    await syncs.let_through()
    writing.cancel()
    disk.locks.clear()  # the process is killed
    syncs.open()
    directory = open_directory(disk)
    log = directory.logs[log.key]
    assert log.start_offset == 5
    assert directory.durable_start_offset(log) <= kept(disk, log)
    await directory.persist_start_offsets()
    assert directory.durable_start_offset(log) == kept(disk, log) == 5


async def test_a_checkpoint_that_waited_for_its_turn_writes_no_earlier_start(
    disk: MemoryDisk,
) -> None:
    directory = open_directory(disk)
    log, other = await make_log(directory), await make_log(directory, 1)
    other.advance_start_offset(1)
    syncs = Syncs(disk)
    first = asyncio.ensure_future(directory.persist_start_offsets())
    await settle()
    second = asyncio.ensure_future(directory.persist_start_offsets())
    await settle()
    checkpoint = asyncio.ensure_future(directory.checkpoint())
    await settle()
    log.advance_start_offset(5)
    for _ in range(4):
        await syncs.let_through()
        assert directory.durable_start_offset(log) == kept(disk, log)
    await second
    assert kept(disk, log) == 5
    for _ in range(8):
        await syncs.let_through()
        assert kept(disk, log) == 5, "told to be durable, and put back"
    assert first.done()
    assert checkpoint.done()


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("advance"), st.integers(0, 1)),
            st.tuples(st.just("drop"), st.integers(0, 1)),
            st.tuples(st.just("cut"), st.integers(0, 1)),
            st.tuples(st.just("make anew"), st.integers(0, 1)),
            st.tuples(st.just("begin"), st.integers(0, 1)),
            st.tuples(st.just("cancel"), st.integers(0, 5)),
            st.tuples(st.just("sync"), st.just(0)),
        ),
        max_size=40,
    )
)
async def test_what_is_called_durable_is_on_disk(steps: list[tuple[str, int]]) -> None:
    disk = formatted()
    directory = open_directory(disk)
    for partition in (0, 1):
        await make_log(directory, partition)
    syncs = Syncs(disk)
    writing: list[asyncio.Future[None]] = []
    for step, number in steps:
        log = directory.logs[TopicPartition("t", number % 2)]
        if step == "advance":
            log.advance_start_offset(min(log.start_offset + 1, log.end_offset))
        elif step == "drop":
            append(log, make_batch())
            log.dropped_end = log.end_offset
        elif step == "cut":
            log.truncate_to(max(0, log.end_offset - 2))
        elif step == "make anew":
            directory.delete("t", number)
            directory.create("t", number, TOPIC_ID)
            for _ in range(RECORDS):
                append(directory.logs[log.key], make_batch())
        elif step == "begin":
            work = directory.checkpoint if number else directory.persist_start_offsets
            writing.append(asyncio.ensure_future(work()))
        elif step == "cancel" and number < len(writing):
            writing[number].cancel()
        elif step == "sync":
            await syncs.let_through()
        await settle()
        for log in directory.logs.values():
            assert directory.durable_start_offset(log) <= kept(disk, log)
            assert directory.durable_dropped_end(log) <= kept(disk, log, DROPPED_ENDS)
    syncs.open()
    await asyncio.gather(*writing, return_exceptions=True)
    await directory.persist_start_offsets()
    for log in directory.logs.values():
        assert directory.durable_start_offset(log) == kept(disk, log) == log.start_offset
        dropped_end = kept(disk, log, DROPPED_ENDS)
        assert directory.durable_dropped_end(log) == dropped_end == log.dropped_end
    await directory.close()


async def test_an_emptied_log_begins_at_its_end_after_a_crash(disk: MemoryDisk) -> None:
    """The file of leader epochs is written before the checkpoint of the start. The crash comes
    between the two."""

    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for _ in range(3):
        append(log, make_batch())
    log.ask_high_watermark = lambda: log.end_offset
    await directory.flush()
    log.advance_start_offset(log.end_offset)
    log.leave_dead_segment()
    await directory.flush()
    await directory.checkpoint()
    end = log.end_offset

    disk.replace_file_now(STARTS, b"0\n0\n")
    disk.power_loss()
    again = LogDirectory.open(disk, PATH, HandClock()).logs[TopicPartition("t", 0)]
    assert again.segments.bases[0] == 0, "its segments were not deleted yet"
    assert (again.start_offset, again.end_offset) == (end, end)


async def test_lowering_what_is_low_already_writes_nothing(disk: MemoryDisk) -> None:
    """There may be no room for a file that says the same."""
    log = await make_log(open_directory(disk))
    checkpoints = OffsetCheckpoints(disk, PATH, {log.key: log}, {})
    checkpoints.load()
    assert checkpoints.of(log.key)[:2] == (RECORDS, RECORDS)
    disk.capacity = disk.used()
    checkpoints.lower(log.key, RECORDS)
    with pytest.raises(OSError, match="No space"):
        checkpoints.lower(log.key, RECORDS - 1)
