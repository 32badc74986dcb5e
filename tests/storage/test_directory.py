"""A directory of logs: opening, checkpoints, deleting, corruption, ending, bad input."""

import asyncio
import errno
import logging

import pytest

from stele.ids import TopicPartition, decode_uuid, encode_uuid
from storage.checkpoints import CORRUPT_FILE, PARTITION_METADATA_FILE, MetaProperties, read_offsets
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.directory_names import parse_partition_directory
from storage.errors import CorruptLogError, LogDirectoryError, StorageError
from storage.formatted import format_directory
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append, commit, enforce_retention
from tests.support.timing import HandClock

PATH = "/data"
OURS = MetaProperties("cluster-a", 1, "dir-1")
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=400)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    format_directory(disk, PATH, OURS)
    return disk


def open_directory(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(
        disk, PATH, HandClock(), CONFIG, cluster_id="cluster-a", node_id=1
    )
    directory.start()
    return directory


def kill_process(disk: MemoryDisk) -> None:
    """Kill the process. Its lock is released."""
    disk.locks.clear()


def checkpoint_file(disk: MemoryDisk, name: str) -> dict[TopicPartition, int]:
    return read_offsets(disk, f"{PATH}/{name}-offset-checkpoint")


# ------------------------------------------------------------------------------- life


async def test_what_was_acknowledged_survives_a_power_loss(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("orders", 3, TOPIC_ID)
    for number in range(30):
        append(log, make_batch(), epoch=number // 10)
    await directory.flush()
    assert log.durable_offset == 30
    append(log, make_batch(), epoch=2)
    disk.power_loss()
    again = open_directory(disk)
    assert not again.clean_shutdown
    log = again.logs[TopicPartition("orders", 3)]
    assert log.topic_id == TOPIC_ID
    assert log.durable_offset == 30
    assert log.epochs.entries == [(0, 0), (1, 10), (2, 20)]


async def test_a_clean_shutdown_is_remembered_once(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for number in range(9):
        append(log, make_batch(producer=(4, 0, number)), epoch=2)
    commit(log, 7)
    await directory.close(broker_epoch=55)
    disk.power_loss()
    again = open_directory(disk)
    assert (again.clean_shutdown, again.previous_broker_epoch) == (True, 55)
    log = again.logs[TopicPartition("t", 0)]
    assert (log.end_offset, log.recovered_high_watermark, log.latest_epoch) == (9, 7, 2)
    repeated = make_batch(producer=(4, 0, 8))
    assert append(log, repeated, epoch=2) == 8
    kill_process(disk)
    third = open_directory(disk)
    assert (third.clean_shutdown, third.previous_broker_epoch) == (False, -1)


async def test_checkpoints_hold_what_is_on_disk_and_committed(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    first = directory.create("t", 0, TOPIC_ID)
    second = directory.create("t", 1, TOPIC_ID)
    for log in (first, second):
        for _ in range(10):
            append(log, make_batch())
    await directory.flush()
    commit(first, 6)
    commit(second, 10)
    second.advance_start_offset(4)
    await directory.checkpoint()
    assert checkpoint_file(disk, "recovery-point") == {("t", 0): 6, ("t", 1): 10}
    assert checkpoint_file(disk, "replication") == {("t", 0): 6, ("t", 1): 10}
    assert checkpoint_file(disk, "log-start") == {("t", 1): 4}
    assert disk.read_file(f"{PATH}/t-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    disk.power_loss()
    again = open_directory(disk)
    assert again.logs[TopicPartition("t", 1)].start_offset == 4
    assert again.logs[TopicPartition("t", 0)].recovered_high_watermark == 6


async def test_truncating_below_a_checkpoint_lowers_it_first(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for _ in range(10):
        append(log, make_batch())
    await directory.flush()
    commit(log, 10)
    await directory.checkpoint()
    log.truncate_to(4)  # an unclean election took the rest
    disk.power_loss()
    again = open_directory(disk)
    assert again.corrupt == {}
    assert again.logs[TopicPartition("t", 0)].end_offset == 4


async def test_what_is_in_the_page_cache_alone_is_synced_after_flush_ms(disk: MemoryDisk) -> None:
    clock = HandClock()
    directory = LogDirectory.open(disk, PATH, clock, CONFIG, cluster_id="cluster-a", node_id=1)
    directory.start()
    relaxed = LogConfig(flush_messages=1000, flush_ms=5000)
    logs = [directory.create("t", number, TOPIC_ID, relaxed) for number in range(2)]
    never = directory.create("t", 2, TOPIC_ID, LogConfig(flush_messages=1000))
    await directory.flush()
    append(logs[0], make_batch())
    append(never, make_batch())
    clock.now_ms += 4999
    append(logs[1], make_batch())
    directory.flush_overdue()
    await directory.flush()
    assert [log.synced_offset for log in (*logs, never)] == [0, 0, 0]
    clock.now_ms += 1
    directory.flush_overdue()
    await directory.flush()
    assert [log.synced_offset for log in (*logs, never)] == [1, 0, 0]
    append(logs[0], make_batch())  # begins to wait anew
    clock.now_ms += 4999
    directory.flush_overdue()
    await directory.flush()
    assert [log.synced_offset for log in (*logs, never)] == [1, 1, 0]
    clock.now_ms += 1
    directory.delete("t", 0)
    directory.flush_overdue()
    await directory.close()


async def test_retention_checkpoints_the_start_before_it_deletes(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=400, retention_bytes=800))
    for _ in range(40):
        append(log, make_batch())
    await directory.flush()
    commit(log, 40)
    assert await enforce_retention(directory) > 0
    assert checkpoint_file(disk, "log-start") == {("t", 0): log.start_offset}
    disk.power_loss()  # the removals were not synced: the files are back
    log_again = open_directory(disk).logs[TopicPartition("t", 0)]
    assert log_again.start_offset == log.start_offset
    assert log_again.segment_bases == log.segment_bases


async def test_a_deleted_partition_may_come_again_under_its_name(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    append(log, make_batch())
    await directory.flush()
    commit(log, 1)
    await directory.checkpoint()
    directory.delete("t", 0)
    assert any(name.endswith("-delete") for name in disk.list(PATH))
    other = bytes(16)
    fresh = directory.create("t", 0, other)
    assert fresh.end_offset == 0
    await directory.flush()
    await directory.remove_deleted()
    assert [name for name in disk.list(PATH) if name.startswith("t-0")] == ["t-0"]
    disk.power_loss()
    again = open_directory(disk)
    assert again.corrupt == {}
    assert again.logs[TopicPartition("t", 0)].topic_id == other


async def make_anew_during_a_checkpoint(disk: MemoryDisk, waits_for: str) -> LogDirectory:
    """Delete ``t-0``, which has three records, and create it again with two, while the checkpoint
    with the three syncs the file whose name contains ``waits_for``."""
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for _ in range(3):
        append(log, make_batch(), epoch=3)
    await directory.flush()
    if "epoch" not in waits_for:
        await directory.checkpoint()  # of the epochs: they are on disk
    commit(log, 3)
    disk.gate = asyncio.Event()
    checkpoint = asyncio.ensure_future(directory.checkpoint())
    await asyncio.sleep(0)
    assert any(waits_for in path for path in disk.synced[-1])
    directory.delete("t", 0)
    fresh = directory.create("t", 0, bytes(16))
    disk.gate.set()
    disk.gate = None
    await checkpoint
    for _ in range(2):
        append(fresh, make_batch())
    await directory.flush()
    return directory


@pytest.mark.parametrize("waits_for", ["leader-epoch", "recovery-point"])
async def test_a_checkpoint_of_a_deleted_log_says_nothing_of_one_made_anew(
    disk: MemoryDisk, waits_for: str
) -> None:
    directory = await make_anew_during_a_checkpoint(disk, waits_for)
    assert directory.offline is None
    assert checkpoint_file(disk, "recovery-point").get(TopicPartition("t", 0), 0) == 0
    disk.power_loss()
    again = open_directory(disk)
    assert again.corrupt == {}
    log = again.logs[TopicPartition("t", 0)]
    assert (log.topic_id, log.end_offset) == (bytes(16), 2)
    assert log.epochs.entries == [(0, 0)]


async def test_epochs_that_found_no_room_are_written_by_the_next_checkpoint(
    disk: MemoryDisk,
) -> None:
    """Including the epochs of the logs before the one that found none."""
    directory = open_directory(disk)
    for partition in (0, 1):
        append(directory.create("t", partition, TOPIC_ID), make_batch(), epoch=7)
    await directory.flush()
    disk.capacity = disk.used() + 8  # one such file has 8 bytes
    with pytest.raises(StorageError, match="No space"):
        await directory.checkpoint()
    disk.capacity = None
    await directory.checkpoint()
    for partition in (0, 1):
        path = f"{PATH}/t-{partition}/leader-epoch-checkpoint"
        assert disk.read_file(path) == b"0\n1\n7 0\n"


DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("role", ["leader", "follower", "restarted", "killed"])
async def test_retention_forgets_no_producer_that_was_at_work_of_late(
    disk: MemoryDisk, role: str
) -> None:
    """The records are older than ``producer.id.expiration.ms``: a backfill."""
    clock = HandClock(now_ms=30 * DAY_MS)
    directory = LogDirectory.open(disk, PATH, clock, CONFIG)
    directory.start()
    log = directory.create("t", 0, TOPIC_ID)
    batch = make_batch(timestamp_ms=5, producer=(4, 0, 0))
    if role == "follower":
        log.append_as_follower(batch)
    else:
        append(log, batch, now_ms=clock.time_ms())
    await directory.flush()
    clock.now_ms += DAY_MS // 2
    if role in ("restarted", "killed"):
        if role == "restarted":
            await directory.close()
        else:
            kill_process(disk)
        directory = LogDirectory.open(disk, PATH, clock, CONFIG)
        log = directory.logs[TopicPartition("t", 0)]
    await enforce_retention(directory, clock.time_ms())
    repeated = make_batch(timestamp_ms=5, producer=(4, 0, 0))
    assert append(log, repeated, now_ms=clock.time_ms()) == 0
    clock.now_ms += DAY_MS
    await enforce_retention(directory, clock.time_ms())
    assert len(log.producers) == 0


# ------------------------------------------------------------------------------- failure


async def test_a_corrupt_log_does_not_stop_the_others(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    for partition in (0, 1):
        log = directory.create("t", partition, TOPIC_ID)
        for _ in range(2):
            append(log, make_batch())
        commit(log, 2)
    await directory.flush()
    for log in directory.logs.values():
        commit(log, 2)
    await directory.checkpoint()
    kill_process(disk)
    disk.flip(f"{PATH}/t-0/{0:020d}.log", 150)
    again = open_directory(disk)
    key = TopicPartition("t", 0)
    assert list(again.corrupt) == [key]
    assert list(again.logs) == [TopicPartition("t", 1)]
    await again.checkpoint()
    assert checkpoint_file(disk, "recovery-point")[key] == 2  # the proof stays
    fresh = again.discard_corrupt("t", 0, TOPIC_ID)
    assert fresh.end_offset == 0
    assert any(name.endswith("-corrupt") for name in disk.list(PATH))
    await again.flush()
    kill_process(disk)
    assert open_directory(disk).corrupt == {}


def no_room(path: str, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", path)


@pytest.mark.parametrize("full", [False, True])
async def test_a_corrupt_log_is_not_forgotten_in_a_clean_shutdown(
    disk: MemoryDisk, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID)
    for _ in range(3):
        append(log, make_batch())
    await directory.flush()
    kill_process(disk)
    disk.flip(f"{PATH}/t-0/{0:020d}.log", 150)
    with monkeypatch.context() as patch:
        if full:
            patch.setattr(disk, "replace_file_now", no_room)
        again = open_directory(disk)
    [found] = again.corrupt.values()
    await again.close()
    third = open_directory(disk)
    assert third.clean_shutdown is not full
    assert [str(error) for error in third.corrupt.values()] == [str(found)]
    assert third.corrupt_topic_ids == {TopicPartition("t", 0): TOPIC_ID}


@pytest.mark.parametrize("note_is_lost", [False, True])
async def test_damage_below_a_recovery_point_that_is_lowered_never_passes_for_a_torn_write(
    disk: MemoryDisk, note_is_lost: bool
) -> None:
    """The high watermark is 0 if a follower heard of none before its clean shutdown."""
    directory = open_directory(disk)
    append(directory.create("t", 0, TOPIC_ID), make_batch(5))
    await directory.close()
    disk.flip(f"{PATH}/t-0/{0:020d}.log", 97)
    for _ in range(2):
        again = open_directory(disk)
        assert list(again.corrupt) == [TopicPartition("t", 0)]
        kill_process(disk)
        if note_is_lost:
            disk.remove(f"{PATH}/t-0/{CORRUPT_FILE}")


async def test_corruption_of_a_log_in_use_is_not_forgotten(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    append(directory.create("t", 0, TOPIC_ID), make_batch())
    path = f"{PATH}/t-0/{0:020d}.log"
    error = CorruptLogError(path, position=0, offset=0, reason="the CRC: it does not match")
    directory.mark_corrupt("t", 0, error)
    await directory.close()
    again = open_directory(disk)
    assert [str(each) for each in again.corrupt.values()] == [str(error)]
    again.discard_corrupt("t", 0, TOPIC_ID)
    await again.close()
    assert open_directory(disk).corrupt == {}


async def test_a_failed_sync_takes_the_directory_offline(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    told: list[str] = []
    directory.on_offline = lambda failed: told.append(failed.path)
    first = directory.create("t", 0, TOPIC_ID)
    second = directory.create("t", 1, TOPIC_ID)
    await directory.flush()
    disk.sync_error = errno.EIO
    append(first, make_batch())
    with pytest.raises(StorageError):
        await directory.flush()
    disk.sync_error = None
    assert told == [PATH]
    for log in (first, second):
        with pytest.raises(StorageError, match="offline"):
            append(log, make_batch())
    with pytest.raises(StorageError, match="offline"):
        directory.create("t", 2, TOPIC_ID)
    with pytest.raises(StorageError, match="offline"):
        await directory.checkpoint()
    await directory.close()
    assert not disk.exists(f"{PATH}/.kafka_cleanshutdown")


async def test_a_failing_write_takes_the_directory_offline(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    told: list[LogDirectory] = []
    directory.on_offline = told.append
    first = directory.create("t", 0, TOPIC_ID)
    second = directory.create("t", 1, TOPIC_ID)
    disk.append_error = errno.EIO
    with pytest.raises(StorageError):
        append(first, make_batch())
    disk.append_error = None
    directory.failed(second, OSError(errno.EROFS, "it fails once more"))
    assert directory.offline is not None
    assert directory.offline.errno == errno.EIO
    assert told == [directory]
    with pytest.raises(StorageError, match="offline"):
        append(second, make_batch())
    await directory.close()


async def test_the_log_of_the_metadata_is_no_partition(disk: MemoryDisk) -> None:
    disk.make_directory(f"{PATH}/__cluster_metadata-0")
    directory = open_directory(disk)
    assert (directory.logs, directory.half_made, directory.corrupt) == ({}, {}, {})
    assert disk.exists(f"{PATH}/__cluster_metadata-0")
    await directory.close()


@pytest.mark.parametrize(("number", "is_offline"), [(errno.EIO, True), (errno.EMFILE, False)])
async def test_a_log_that_cannot_be_made_takes_the_directory_offline_if_the_device_failed(
    disk: MemoryDisk, number: int, is_offline: bool
) -> None:
    directory = open_directory(disk)
    disk.open_error = number
    with pytest.raises(StorageError, match="cannot be made"):
        directory.create("t", 0, TOPIC_ID)
    assert (directory.offline is not None) is is_offline


async def filled_up(disk: MemoryDisk) -> LogDirectory:
    """A full disk with a log that has more segments than retention keeps."""
    directory = open_directory(disk)
    log = directory.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=400, retention_bytes=800))
    while True:
        disk.capacity = 4000
        try:
            append(log, make_batch())
        except StorageError:
            break
    await directory.flush()
    commit(log, log.end_offset)
    disk.capacity = disk.used()
    with pytest.raises(StorageError, match="No space"):
        await directory.checkpoint()
    assert directory.offline is None
    return directory


async def test_a_full_disk_is_freed_by_retention_and_goes_on(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = await filled_up(disk)
    log = directory.logs[TopicPartition("t", 0)]

    def wait(path: str) -> None:
        raise AssertionError(f"the event loop waits for {path}")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_now", wait)
        assert await enforce_retention(directory) > 2
    append(log, make_batch())
    await directory.flush()
    await directory.checkpoint()
    assert checkpoint_file(disk, "log-start") == {("t", 0): log.start_offset}
    disk.power_loss()
    assert open_directory(disk).logs[TopicPartition("t", 0)].end_offset == log.end_offset


async def test_a_power_loss_while_a_full_disk_is_freed_leaves_no_gap() -> None:
    turns = 0
    is_done = False
    while not is_done:
        disk = MemoryDisk()
        format_directory(disk, PATH, OURS)
        directory = await filled_up(disk)
        end = directory.logs[TopicPartition("t", 0)].end_offset
        task = asyncio.ensure_future(enforce_retention(directory))
        for _ in range(turns):
            await asyncio.sleep(0)
        is_done = task.done()
        disk.power_loss()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        disk.capacity = None
        again = open_directory(disk)
        assert not again.corrupt
        assert again.logs[TopicPartition("t", 0)].end_offset == end
        turns += 1
    assert turns > 5


# ------------------------------------------------------------------------------- bad input


def test_a_directory_has_one_process(disk: MemoryDisk) -> None:
    open_directory(disk)
    with pytest.raises(LogDirectoryError, match="in use by another process"):
        open_directory(disk)
    kill_process(disk)
    open_directory(disk)
    kill_process(disk)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "words"),
    [
        ("cluster-b", 1, "belongs to cluster cluster-a, this node to cluster-b"),
        ("cluster-a", 2, "belongs to node 1, this is node 2"),
    ],
)
def test_a_foreign_directory_is_refused(
    disk: MemoryDisk, cluster_id: str, node_id: int, words: str
) -> None:
    with pytest.raises(LogDirectoryError, match=words) as caught:
        LogDirectory.open(disk, PATH, HandClock(), cluster_id=cluster_id, node_id=node_id)
    assert "\n" not in str(caught.value)


def test_an_unformatted_directory_is_refused() -> None:
    with pytest.raises(LogDirectoryError, match="stele format"):
        LogDirectory.open(MemoryDisk(), PATH, HandClock())


def test_formatting_spares_what_is_there(disk: MemoryDisk) -> None:
    with pytest.raises(LogDirectoryError, match="formatted already, for node 1"):
        format_directory(disk, PATH, OURS)
    disk.make_directory("/home")
    disk.replace_file_now("/home/thesis.txt", b"")
    with pytest.raises(LogDirectoryError, match=r"not empty \(thesis.txt\)"):
        format_directory(disk, "/home", OURS)


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "meta.properties"],
)
def test_a_malformed_file_is_named_and_unlocks(disk: MemoryDisk, name: str) -> None:
    disk.replace_file_now(f"{PATH}/{name}", b"\x00garbage")
    for _ in range(2):
        with pytest.raises(LogDirectoryError, match=f"{name} is malformed") as caught:
            open_directory(disk)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ("orders", 0)),
        ("a.b_c-d-12", ("a.b_c-d", 12)),
        ("orders", None),
        ("orders-x", None),
        ("-1", None),
        ("orders-0.abc-delete", None),
        ("lost+found", None),
    ],
)
def test_directory_names(name: str, expected: tuple[str, int] | None) -> None:
    assert parse_partition_directory(name) == expected


def test_ids_have_kafkas_text_form() -> None:
    assert encode_uuid(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert decode_uuid(encode_uuid(TOPIC_ID)) == TOPIC_ID
    with pytest.raises(ValueError, match="16-byte"):
        decode_uuid("AAAA")


@pytest.mark.parametrize(("log_ms", "numbers"), [(2000, (3, 6, 9)), (2500, (2, 4, 6, 8, 10))])
async def test_a_long_recovery_tells_every_five_seconds_how_far_it_is(
    disk: MemoryDisk,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    log_ms: int,
    numbers: tuple[int, ...],
) -> None:
    directory = open_directory(disk)
    for number in range(10):
        append(directory.create("t", number, TOPIC_ID), make_batch())
    await directory.flush()
    kill_process(disk)
    clock = HandClock()
    read_file = disk.read_file

    def read_slowly(path: str) -> bytes:
        if path.endswith(PARTITION_METADATA_FILE):  # once for each log
            clock.now_ms += log_ms
        return read_file(path)

    monkeypatch.setattr(disk, "read_file", read_slowly)
    with caplog.at_level(logging.INFO):
        LogDirectory.open(disk, PATH, clock)
    told = [line for line in caplog.messages if "recovering" in line]
    assert told == [f"{PATH}: recovering log {number} of 10" for number in numbers]
