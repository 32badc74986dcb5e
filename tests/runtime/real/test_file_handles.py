"""Open files of the real disk: their number is limited, handles are given back and taken again,
helpers die."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.real import disk as real_disk
from runtime.real.disk import RealDisk, RealFile
from runtime.real.helper import HelperProcess
from stele.ids import TopicPartition
from stele.real import RealClock
from storage.checkpoints import MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.formatted import format_directory
from storage.opening import open_log
from tests.support.batches import make_batch
from tests.support.storage import append, commit


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk(max_handles=4)
    yield disk
    disk.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def no_handle_left() -> Iterator[None]:
    """As if clients had taken all handles."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    held: list[int] = []
    try:
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(["append", "read", "truncate", "close"])),
        max_size=60,
    )
)
def test_files_without_handles_are_as_files_with(
    tmp_path: Path, events: list[tuple[int, str]]
) -> None:
    disk = RealDisk(max_handles=3)
    files: dict[int, RealFile] = {}
    contents: dict[int, bytes] = {}
    before = open_files()
    for step, (number, event) in enumerate(events):
        if number not in files:
            path = tmp_path / str(number)
            path.unlink(missing_ok=True)
            files[number], contents[number] = disk.open(str(path), create=True), b""
        file = files[number]
        if event == "append":
            assert file.append([b"%d;" % step]) == len(contents[number])
            contents[number] += b"%d;" % step
        elif event == "read":
            assert bytes(file.read_now(1, 100)) == contents[number][1:101]
        elif event == "truncate":
            contents[number] = contents[number][: len(contents[number]) // 2]
            file.truncate(len(contents[number]))
        else:
            file.close()
            del files[number]
            with pytest.raises(OSError, match="Bad file descriptor"):
                file.read_now(0, 1)
        assert file.size == len(contents[number])
        assert len(disk.handles) <= min(3, len(files))
        assert open_files() - before <= 3
    for file in files.values():
        file.close()
    assert open_files() == before
    disk.close()


def test_a_file_in_the_place_of_another_is_not_taken_for_it(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/f", create=True)
    file.append([b"ours"])
    file.give_back()
    disk.handles.forget(file)
    (tmp_path / "other").write_bytes(b"theirs")
    os.replace(tmp_path / "other", tmp_path / "f")
    with pytest.raises(FileNotFoundError, match="another file"):
        file.read_now(0, 4)
    file.close()


def test_many_readers_of_old_segments_leave_no_handles_behind(tmp_path: Path) -> None:
    disk = RealDisk()
    log = open_log(
        disk,
        f"{tmp_path}/t-0",
        LogConfig(segment_bytes=5_000, flush_messages=10**9),
        RealClock(),
        key=TopicPartition("t", 0),
    )
    for _ in range(400):
        append(log, make_batch(size=900))
    log.sync_now()
    before = open_files()
    readers = log.segment_bases[:-1:4]
    for _ in range(30):
        for number, offset in enumerate(readers):
            readers[number] = log.read(offset, 1500).next_offset
    assert open_files() <= before + 5
    log.close()
    disk.close()


@pytest.mark.parametrize("in_kernel", [True, False])
async def test_logs_give_handles_back_where_the_process_has_none_left(
    tmp_path: Path, in_kernel: bool
) -> None:
    """All operations of a directory go on, with handles that other logs give back."""
    disk = RealDisk(syncs_in_kernel=in_kernel)
    path = f"{tmp_path}/data"
    format_directory(disk, path, MetaProperties("c", 1, "d"))
    directory = LogDirectory.open(disk, path, RealClock(), LogConfig(segment_bytes=5_000))
    directory.start()
    logs = [directory.create("t", number, bytes(16)) for number in range(5)]
    await directory.flush()
    with no_handle_left():
        for _ in range(20):
            for log in logs:
                append(log, make_batch(size=900))
        await directory.flush()
        for log in logs:
            commit(log, log.end_offset)
            assert log.read(0, 10).data
        await directory.checkpoint()
        logs[0].truncate_to(7)
        directory.delete("t", 4)
        await directory.remove_deleted()
        directory.create("t", 5, bytes(16))
        assert directory.offline is None
    assert logs[0].end_offset == 7
    await directory.close()
    again = LogDirectory.open(disk, path, RealClock())
    assert again.clean_shutdown
    assert again.corrupt == {}
    await again.close()
    disk.close()


async def test_a_read_process_that_died_is_replaced(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/f"
    disk.open(path, create=True).close()
    await disk.warm(path, 0, 10)
    first = disk.read_process_id
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    pending = asyncio.ensure_future(disk.warm(path, 0, 10))
    await asyncio.sleep(0)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ChildProcessError):
        await pending
    await disk.warm(path, 0, 10)
    second = disk.read_process_id
    assert second not in (None, first)
    os.kill(second or 0, signal.SIGKILL)
    with pytest.raises(ChildProcessError):
        await disk.warm(path, 0, 10)
    with pytest.raises(ChildProcessError, match="died again"):
        await disk.warm(path, 0, 10)
    monkeypatch.setattr(real_disk, "_READER_PAUSE_S", 0.0)
    await disk.warm(path, 0, 10)


async def test_a_sync_waits_while_the_system_is_short_of_handles(
    process_disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(real_disk, "_SHORTAGE_S", 0.0)

    async def call(helper: HelperProcess, kind: str, *arguments: object) -> None:
        asked.append(kind)
        if len(asked) < 3:
            raise OSError(errno.ENFILE, "Too many open files in system", str(tmp_path))

    monkeypatch.setattr(HelperProcess, "call", call)
    await process_disk.sync([str(tmp_path)])
    assert asked == ["sync"] * 3
