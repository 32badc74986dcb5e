"""The real disk: bytes, cold reads, helper processes that die or lose their parent."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.real.disk import RealDisk
from runtime.real.kernel_sync import GROUP_FILES
from runtime.real.sync_process import SYNCFS_FROM_FILES
from stele.ids import TopicPartition
from stele.real import RealClock
from storage.checkpoints import MetaProperties
from storage.cold_range import COLD_BYTES
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import LogDirectoryError, StorageError
from storage.formatted import format_directory
from tests.support.batches import make_batch
from tests.support.storage import append, commit
from tests.support.timing import until

ROOT = Path(__file__).parents[3]


# ------------------------------------------------------------------------------- files


def test_appends_go_to_the_end_gathered(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/f", create=True)
    assert file.append([b"abc"]) == 0
    assert file.append([b"d", bytearray(b"ef"), b"", memoryview(b"ghi")[1:]]) == 3
    assert file.append([b"%d," % n for n in range(3000)]) == 8  # more than one system call takes
    assert file.size == os.path.getsize(file.path)
    assert file.read_now(0, 8) == b"abcdefhi"
    assert bytes(file.read_now(8, 10**6)) == b"".join(b"%d," % n for n in range(3000))
    file.truncate(4)
    assert file.append([b"X"]) == 4
    assert file.read(0, 100) == b"abcdX"
    assert file.read(5, 100) == b""
    file.close()
    again = disk.open(f"{tmp_path}/f")
    assert again.size == 5
    again.close()


def test_short_writes_are_continued(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(f"{tmp_path}/f", create=True)
    write, writev = os.write, os.writev

    def short_writev(fd: int, views: list[memoryview]) -> int:
        return writev(fd, [views[0][:3]])

    monkeypatch.setattr("os.write", lambda fd, data: write(fd, memoryview(data)[:2]))
    monkeypatch.setattr("os.writev", short_writev)
    assert file.append([b"0123456789"]) == 0
    assert file.append([b"abcd", b"efgh"]) == 10
    assert file.read_now(0, 100) == b"0123456789abcdefgh"
    file.close()


def test_missing_files_are_reported(disk: RealDisk, tmp_path: Path) -> None:
    for call in (disk.open, disk.list, disk.read_file, disk.remove):
        with pytest.raises(FileNotFoundError):
            call(f"{tmp_path}/none")


def test_names(disk: RealDisk, tmp_path: Path) -> None:
    root = str(tmp_path)
    disk.make_directory(f"{root}/a/b")
    disk.make_directory(f"{root}/a/b")
    disk.replace_file_now(f"{root}/a/z", b"1")
    disk.replace_file_now(f"{root}/a/z", b"22")
    assert disk.read_file(f"{root}/a/z") == b"22"
    assert disk.list(f"{root}/a") == ["b", "z"]
    disk.rename(f"{root}/a", f"{root}/c")
    assert (disk.exists(f"{root}/a"), disk.exists(f"{root}/c/z")) == (False, True)
    disk.remove_tree(f"{root}/c")
    assert disk.list(root) == []
    assert disk.free_bytes(root) > 0


async def test_a_file_that_could_not_be_replaced_leaves_no_part_behind(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path)
    disk.make_directory(f"{root}/f")
    with pytest.raises(IsADirectoryError):
        await disk.replace_file(f"{root}/f", b"x")
    assert disk.list(root) == ["f"]

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="space"):
        disk.replace_file_now(f"{root}/g", b"x")
    assert disk.list(root) == ["f"]


async def test_no_file_is_replaced_if_a_handle_for_the_sync_of_its_directory_is_lacking(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, open_path = str(tmp_path), os.open
    disk.replace_file_now(f"{root}/f", b"old")

    def one_handle_is_left(path: str, flags: int, mode: int = 0o777) -> int:
        if path == root:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return open_path(path, flags, mode)

    monkeypatch.setattr(os, "open", one_handle_is_left)
    with pytest.raises(OSError, match="open files"):
        disk.replace_file_now(f"{root}/f", b"new")
    monkeypatch.undo()
    assert disk.list(root) == ["f"]
    assert disk.read_file(f"{root}/f") == b"old"


async def test_what_is_discarded_is_gone(disk: RealDisk, tmp_path: Path) -> None:
    root = str(tmp_path)
    disk.make_directory(f"{root}/tree/branch")
    for name in ("tree/branch/leaf", "tree/file", "file", "kept"):
        disk.replace_file_now(f"{root}/{name}", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    await disk.discard([f"{root}/{name}" for name in ("tree", "none", "file", "link")])
    assert disk.list(root) == ["kept"]
    await disk.discard([])


def test_a_lock_has_one_holder(disk: RealDisk, tmp_path: Path) -> None:
    release = disk.lock(f"{tmp_path}/.lock")
    with pytest.raises(BlockingIOError):
        RealDisk().lock(f"{tmp_path}/.lock")
    release()
    RealDisk().lock(f"{tmp_path}/.lock")()


# ------------------------------------------------------------------------------- helpers


@pytest.mark.parametrize("in_kernel", [True, False])
@pytest.mark.parametrize("count", [1, SYNCFS_FROM_FILES + 2, GROUP_FILES + 2])
async def test_sync(tmp_path: Path, count: int, in_kernel: bool) -> None:
    disk = RealDisk(syncs_in_kernel=in_kernel)
    paths = [f"{tmp_path}/{n}" for n in range(count)]
    for path in paths:
        file = disk.open(path, create=True)
        file.append([b"x"])
        file.close()
    await disk.sync([*paths, str(tmp_path), f"{tmp_path}/gone"])
    await disk.sync([])
    disk.close()


async def test_many_requests_at_once(disk: RealDisk, tmp_path: Path) -> None:
    """More bytes than the socket can hold."""
    data = [os.urandom(100_000) for _ in range(20)]
    await asyncio.gather(*(disk.replace_file(f"{tmp_path}/{n}", d) for n, d in enumerate(data)))
    assert [disk.read_file(f"{tmp_path}/{n}") for n in range(20)] == data
    assert disk.list(str(tmp_path)) == sorted(str(n) for n in range(20))


async def test_errors_of_the_helper_come_back(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        await disk.warm(f"{tmp_path}/none", 0, 1)
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(NotADirectoryError):
        await disk.replace_file("/dev/null/x", b"")


async def test_a_cold_read_answers_none_until_warmed(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/f"
    file = disk.open(path, create=True)
    file.append([os.urandom(4 << 20)])
    disk.sync_now(path)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    position = 2 << 20
    if file.read(position, 1000) is not None:
        file.close()
        pytest.skip("this file system keeps its pages, or cannot tell")
    await disk.warm(path, position, 1000)
    data = file.read(position, 1000)
    assert data is not None
    assert len(data) == 1000
    file.close()


class _Cache:
    """Stands in for ``os.preadv``: a kernel that begins to read whatever is asked for and is not in
    memory. ``kicked`` has the sizes."""

    def __init__(self, warm_bytes: int) -> None:
        self.warm_bytes = warm_bytes  # from the beginning of the file
        self.kicked: list[int] = []

    def preadv(self, fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
        wanted = min(len(buffers[0]), max(os.fstat(fd).st_size - position, 0))
        found = min(max(self.warm_bytes - position, 0), wanted)
        if found < wanted:
            self.kicked.append(wanted - found)
        if wanted and not found:
            raise BlockingIOError
        return found


def test_a_file_with_cold_bytes_has_the_kernel_read_little_ahead(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first read that finds cold bytes asks for all it wants, and never for more."""
    advised: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *advice: advised.append(advice[3]))
    file = disk.open(f"{tmp_path}/f", create=True)
    file.append([bytes(8 * COLD_BYTES)])
    cache = _Cache(0)
    monkeypatch.setattr(os, "preadv", cache.preadv)
    assert file.read(0, 4 * COLD_BYTES) is None
    assert cache.kicked == [4 * COLD_BYTES]
    assert advised == [os.POSIX_FADV_RANDOM]  # before the first read
    cache.kicked.clear()
    for position in range(0, 8 * COLD_BYTES, COLD_BYTES):
        assert file.read(position, 8 * COLD_BYTES) is None
        cache.warm_bytes = position + COLD_BYTES  # as ``warm`` does
        data = file.read(position, 8 * COLD_BYTES)
        assert data is not None
        assert len(data) == COLD_BYTES
    assert max(cache.kicked) == 1
    file.close()


def test_a_file_that_stays_in_memory_is_read_with_one_call(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also some time after cold bytes were found."""
    file = disk.open(f"{tmp_path}/f", create=True)
    file.append([bytes(1000)])
    cache = _Cache(0)
    calls: list[int] = []

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
        calls.append(len(buffers[0]))
        return cache.preadv(fd, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", preadv)
    assert file.read(0, 1000) is None
    cache.warm_bytes = 1000
    for _ in range(100):
        assert file.read(0, 1000) == bytes(1000)
    calls.clear()
    assert file.read(0, 1000) == bytes(1000)
    assert calls == [1000]
    file.close()


async def test_when_the_sync_process_dies_every_sync_fails(
    process_disk: RealDisk, tmp_path: Path
) -> None:
    await process_disk.sync([str(tmp_path)])
    assert process_disk.sync_process_id is not None
    os.kill(process_disk.sync_process_id, signal.SIGSTOP)
    state = Path(f"/proc/{process_disk.sync_process_id}/stat")
    await until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
    pending = [asyncio.ensure_future(process_disk.sync([str(tmp_path)])) for _ in range(3)]
    await asyncio.sleep(0.05)
    os.kill(process_disk.sync_process_id, signal.SIGKILL)
    for result in await asyncio.gather(*pending, return_exceptions=True):
        assert isinstance(result, OSError)
    with pytest.raises(OSError, match="sync process died"):
        await process_disk.sync([str(tmp_path)])


async def test_the_helper_ignores_signals_meant_for_its_parent(
    process_disk: RealDisk, tmp_path: Path
) -> None:
    await process_disk.sync([str(tmp_path)])
    assert process_disk.sync_process_id is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(process_disk.sync_process_id, number)
    await process_disk.sync([str(tmp_path)])
    assert os.getsid(process_disk.sync_process_id) != os.getsid(0)


async def test_close_leaves_no_process(tmp_path: Path) -> None:
    disk = RealDisk(syncs_in_kernel=False)
    await disk.sync([str(tmp_path)])
    pid = disk.sync_process_id
    assert pid is not None
    disk.close()
    disk.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(OSError, match="closed"):
        await disk.sync([str(tmp_path)])


PARENT = """
import asyncio, sys
from runtime.real.disk import RealDisk
async def main():
    disk = RealDisk(syncs_in_kernel=False)
    await disk.sync([sys.argv[1]])
    print(disk.sync_process_id, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.processes
def test_a_killed_parent_leaves_no_orphan(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        helper = os.pidfd_open(pid)
        parent.kill()
    try:
        # Readable once the process has ended.
        import select

        assert select.select([helper], [], [], 10)[0]
    finally:
        os.close(helper)


# ------------------------------------------------------------------------------- with storage


async def test_a_log_directory_on_real_files(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/data"
    config = LogConfig(segment_bytes=20_000)
    format_directory(disk, path, MetaProperties("c", 1, "d"))
    directory = LogDirectory.open(disk, path, RealClock(), config)
    directory.start()
    logs = [directory.create("t", n, bytes(16)) for n in range(GROUP_FILES)]
    for number in range(50):
        for log in logs:
            append(log, make_batch(10, size=100, producer=(1, 0, number * 10)))
    await directory.flush()
    assert {log.durable_offset for log in logs} == {500}
    logs[0].truncate_to(123)
    for log in logs:
        commit(log, log.end_offset)
    await directory.checkpoint()
    with pytest.raises(LogDirectoryError, match="in use"):
        LogDirectory.open(disk, path, RealClock(), config)
    await directory.close()
    again = LogDirectory.open(disk, path, RealClock(), config)
    assert again.clean_shutdown
    assert again.logs[TopicPartition("t", 0)].end_offset == 120
    log = again.logs[TopicPartition("t", 1)]
    assert [h.base_offset for h, _ in log.batches_now(0)] == list(range(0, 500, 10))
    await again.close()


async def test_a_dead_sync_process_takes_the_directory_offline(
    process_disk: RealDisk, tmp_path: Path
) -> None:
    path = f"{tmp_path}/data"
    format_directory(process_disk, path, MetaProperties("c", 1, "d"))
    directory = LogDirectory.open(process_disk, path, RealClock())
    directory.start()
    log = directory.create("t", 0, bytes(16))
    append(log, make_batch())
    await directory.flush()
    assert process_disk.sync_process_id is not None
    os.kill(process_disk.sync_process_id, signal.SIGKILL)
    append(log, make_batch())
    with pytest.raises(StorageError):
        await directory.flush()
    assert directory.offline is not None
    assert log.durable_offset == 1
    with pytest.raises(StorageError):
        append(log, make_batch())
    await directory.close()


def test_an_unreadable_directory_is_a_line(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(LogDirectoryError, match=r"cannot be read|not formatted"):
        LogDirectory.open(disk, f"{tmp_path}/data", RealClock())


WRITER = """
import asyncio, sys
from runtime.real.disk import RealDisk
from stele.real import RealClock
from storage.config import LogConfig
from storage.directory import LogDirectory
from tests.support.batches import make_batch
from tests.support.storage import append

async def main():
    directory = LogDirectory.open(
        RealDisk(), sys.argv[1], RealClock(), LogConfig(segment_bytes=50_000)
    )
    directory.start()
    log = directory.create("t", 0, bytes(16))
    log.on_durable = lambda log: print(log.durable_offset, flush=True)
    while True:
        for _ in range(20):
            append(log, make_batch(5, size=50, producer=(1, 0, log.end_offset)))
        await asyncio.sleep(0)

asyncio.run(main())
"""


def write_and_kill(path: str) -> int:
    """Let a process write there, and kill it. Returns the greatest offset that it called
    durable."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        acknowledged = 0
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged > 5000:
                break
        writer.kill()
        # The kill may have cut the last line off: then it has no newline.
        rest = writer.stdout.read().splitlines(keepends=True)
    return max([acknowledged, *(int(line) for line in rest if line.endswith("\n"))])


@pytest.mark.processes
async def test_what_a_killed_writer_called_durable_is_there(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/data"
    format_directory(disk, path, MetaProperties("c", 1, "d"))
    acknowledged = write_and_kill(path)
    assert acknowledged > 5000
    directory = LogDirectory.open(disk, path, RealClock())
    assert not directory.clean_shutdown
    log = directory.logs[TopicPartition("t", 0)]
    assert log.end_offset >= acknowledged
    assert [h.base_offset for h, _ in log.batches_now(0)] == list(range(0, log.end_offset, 5))
    state = log.producers.get(1)
    assert state is not None
    assert state.last_sequence == log.end_offset - 1
    await directory.close()
