"""Syncs in the kernel: what they cover, how they fail, and when they are left to the process."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.real.disk import RealDisk
from runtime.real.kernel_sync import CAPACITY, KernelSync, UnsupportedError
from runtime.real.named_files import NamedFiles
from tests.support.timing import until
from world.disk import SyncFailedError

_IO_SETUP = {"x86_64": 206, "aarch64": 0}.get(os.uname().machine)
_IO_GETEVENTS = {"x86_64": 208, "aarch64": 4}.get(os.uname().machine)
_IO_SUBMIT = {"x86_64": 209, "aarch64": 2}.get(os.uname().machine)
_EVENT = struct.Struct("<QQqq")
_HANDLE = struct.Struct("<20xI")  # where struct iocb has it


class Kernel:
    """The kernel, some of whose answers a test changes."""

    def __init__(self) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self.has_no_context = False
        self.refusal = 0  # the errno of io_submit
        self.takes: int | None = None  # the most requests that io_submit takes
        self.results: dict[int, int] = {}  # by the number of the request
        self.loses_events = False
        self.submitted = 0
        self.told = 0  # how many results it has reported
        self.inodes: list[int] = []  # of the files of the last call

    def __call__(self, number: int, *arguments: Any) -> int:
        if number == _IO_SETUP and self.has_no_context:
            ctypes.set_errno(errno.EPERM)
            return -1
        if number == _IO_SUBMIT:
            return self._submit(*arguments)
        if number == _IO_GETEVENTS:
            return self._get_events(*arguments)
        return int(self._syscall(number, *arguments))

    def _submit(self, context: Any, count: ctypes.c_long, blocks: Any) -> int:
        if self.refusal:
            ctypes.set_errno(self.refusal)
            return -1
        handles = [_HANDLE.unpack(ctypes.string_at(at, 24))[0] for at in blocks[: count.value]]
        self.inodes = [os.fstat(handle).st_ino for handle in handles]
        most = count.value if self.takes is None else min(count.value, self.takes)
        taken = int(self._syscall(_IO_SUBMIT, context, ctypes.c_long(most), blocks)) if most else 0
        self.submitted += taken
        return taken

    def _get_events(self, context: Any, least: Any, most: Any, events: Any, wait: Any) -> int:
        if self.loses_events:
            ctypes.set_errno(errno.EFAULT)
            return -1
        count = int(self._syscall(_IO_GETEVENTS, context, least, most, events, wait))
        for place in range(count):
            data, block, result, other = _EVENT.unpack_from(events, place * _EVENT.size)
            result = self.results.get(data, result)
            _EVENT.pack_into(events, place * _EVENT.size, data, block, result, other)
        self.told += count
        return count


@pytest.fixture
def kernel() -> Kernel:
    try:
        KernelSync(NamedFiles()).close()
    except UnsupportedError as reason:
        pytest.skip(f"no asynchronous syncs here: {reason}")
    return Kernel()


@pytest.fixture
def syncs(kernel: Kernel) -> Iterator[KernelSync]:
    syncs = KernelSync(NamedFiles(), syscall=kernel)
    yield syncs
    syncs.close()


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(b"x")
    return [str(tmp_path), *(str(tmp_path / f"{number}") for number in range(3))]


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_files_and_directories_are_synced_and_no_handle_is_kept(
    syncs: KernelSync, kernel: Kernel, paths: list[str]
) -> None:
    before = handles()
    await asyncio.gather(*(syncs.sync(paths) for _ in range(5)))
    await syncs.sync([*paths, f"{paths[0]}/gone"])
    assert kernel.submitted == 6 * len(paths)
    assert (syncs.room, handles()) == (CAPACITY, before)


async def test_nothing_is_asked_for_paths_that_are_gone(syncs: KernelSync, kernel: Kernel) -> None:
    await syncs.sync(["/gone", "/gone/too"])
    assert kernel.submitted == 0


async def test_a_failed_sync_is_reported_when_its_group_has_ended(
    syncs: KernelSync, kernel: Kernel, paths: list[str]
) -> None:
    kernel.results[2] = -errno.EIO
    with pytest.raises(SyncFailedError) as caught:
        await syncs.sync(paths)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, paths[2])
    assert syncs.room == CAPACITY
    await syncs.sync(paths)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP])
async def test_a_kernel_that_refuses_is_told_apart(
    syncs: KernelSync, kernel: Kernel, paths: list[str], code: int
) -> None:
    kernel.refusal = code
    before = handles()
    with pytest.raises(UnsupportedError, match="io_submit"):
        syncs.sync(paths)
    assert (syncs.room, handles()) == (CAPACITY, before)


def test_a_process_that_may_not_ask_the_kernel_keeps_no_handle(kernel: Kernel) -> None:
    kernel.has_no_context = True
    before = handles()
    with pytest.raises(UnsupportedError, match="io_setup: Operation not permitted"):
        KernelSync(NamedFiles(), syscall=kernel)
    assert handles() == before


async def test_a_kernel_without_room_has_begun_nothing(
    syncs: KernelSync, kernel: Kernel, paths: list[str]
) -> None:
    kernel.refusal = errno.EAGAIN
    with pytest.raises(OSError, match="io_submit") as caught:
        syncs.sync(paths)
    assert caught.value.errno == errno.EAGAIN
    assert not isinstance(caught.value, SyncFailedError)
    kernel.refusal, kernel.takes = 0, 0
    with pytest.raises(OSError, match="io_submit"):
        syncs.sync(paths)
    assert syncs.room == CAPACITY


async def test_a_group_that_has_begun_in_part_ends_first(
    syncs: KernelSync, kernel: Kernel, paths: list[str]
) -> None:
    kernel.takes = 2
    under_way = syncs.sync(paths)
    assert syncs.room == CAPACITY - 2
    with pytest.raises(OSError, match="took 2 of 4") as caught:
        await under_way
    assert not isinstance(caught.value, SyncFailedError)
    kernel.results[len(paths) + 1] = -errno.EIO  # of what began, a failure counts more
    with pytest.raises(SyncFailedError):
        await syncs.sync(paths)


async def test_a_group_for_which_no_handle_is_left_begins_nothing(
    syncs: KernelSync, kernel: Kernel, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    really_open = os.open

    def open_file(path: str, flags: int) -> int:
        if len(opened) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        opened.append(really_open(path, flags))
        return opened[-1]

    before = handles()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", open_file)
        with pytest.raises(OSError, match="Too many open files"):
            syncs.sync(paths)
    assert (kernel.submitted, syncs.room, handles()) == (0, CAPACITY, before)


async def test_syncs_whose_end_is_not_told_count_as_failed(
    syncs: KernelSync, kernel: Kernel, paths: list[str]
) -> None:
    kernel.loses_events = True
    with pytest.raises(SyncFailedError, match="io_getevents: Bad address"):
        await syncs.sync(paths)


async def test_who_no_longer_waits_disturbs_nobody(syncs: KernelSync, paths: list[str]) -> None:
    left, waits = syncs.sync(paths), syncs.sync(paths)
    left.cancel()
    await waits
    await until(lambda: syncs.room == CAPACITY)


async def test_a_closed_one_takes_nothing_and_leaves_nobody_waiting(
    kernel: Kernel, paths: list[str]
) -> None:
    syncs = KernelSync(NamedFiles(), syscall=kernel)
    before = handles()
    under_way = syncs.sync(paths)
    syncs.close()
    syncs.close()
    with pytest.raises(OSError, match="closed"):
        await under_way
    with pytest.raises(OSError, match="closed"):
        syncs.sync(paths)
    assert handles() == before - 1  # the eventfd


def test_it_belongs_to_one_event_loop(syncs: KernelSync, paths: list[str]) -> None:
    async def sync() -> None:
        await syncs.sync(paths)

    with asyncio.Runner() as runner, asyncio.Runner() as other:
        runner.run(sync())
        with pytest.raises(RuntimeError, match="another event loop"):
            other.run(sync())


# ------------------------------------------------------------------------------- the disk


@pytest.fixture
def disk_on(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Callable[[], RealDisk]:
    monkeypatch.setattr(
        "runtime.real.disk.KernelSync", lambda names: KernelSync(names, syscall=kernel)
    )
    return RealDisk


async def test_a_disk_leaves_all_syncs_to_the_process_once_the_kernel_has_refused(
    disk_on: Callable[[], RealDisk],
    kernel: Kernel,
    paths: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    kernel.refusal = errno.EINVAL
    disk = disk_on()
    await disk.sync(paths)
    kernel.refusal = 0
    await disk.sync(paths)
    assert kernel.submitted == 0
    assert caplog.text.count("left to the helper process") == 1
    disk.close()


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EMFILE])
async def test_a_disk_gives_what_cannot_begin_in_the_kernel_to_the_process(
    disk_on: Callable[[], RealDisk], kernel: Kernel, paths: list[str], code: int
) -> None:
    kernel.refusal = code
    disk = disk_on()
    await disk.sync(paths)
    kernel.refusal = 0
    await disk.sync(paths)
    assert kernel.submitted == len(paths)
    disk.close()


async def test_a_disk_begins_anew_where_only_a_part_of_a_group_began(
    disk_on: Callable[[], RealDisk], kernel: Kernel, paths: list[str]
) -> None:
    disk = disk_on()
    for _ in range(2):  # the second time, with the kernel in use
        kernel.submitted, kernel.takes = 0, 1
        syncing = asyncio.ensure_future(disk.sync(paths))
        await until(lambda: kernel.submitted == 1)
        kernel.takes = None
        await syncing
        assert kernel.submitted == 1 + len(paths)
    disk.close()


async def test_a_part_of_a_group_that_fails_is_a_failed_group(
    disk_on: Callable[[], RealDisk], kernel: Kernel, paths: list[str]
) -> None:
    disk = disk_on()
    await disk.sync(paths)
    kernel.takes = 1
    kernel.results[len(paths)] = -errno.EIO
    with pytest.raises(SyncFailedError):
        await disk.sync(paths)
    disk.close()


async def test_a_disk_in_use_gives_what_cannot_begin_in_the_kernel_to_the_process(
    disk_on: Callable[[], RealDisk], kernel: Kernel, paths: list[str]
) -> None:
    disk = disk_on()
    await disk.sync(paths)
    kernel.refusal = errno.EMFILE
    await disk.sync(paths)
    assert kernel.submitted == len(paths)
    disk.close()


async def test_a_disk_syncs_in_the_kernel_though_the_process_runs_for_other_work(
    disk_on: Callable[[], RealDisk], kernel: Kernel, paths: list[str]
) -> None:
    disk = disk_on()
    await disk.replace_file(f"{paths[0]}/replaced", b"x")
    await disk.sync(paths)
    assert kernel.submitted == len(paths)
    disk.close()


async def test_a_disk_tells_of_a_failed_sync(
    disk_on: Callable[[], RealDisk], kernel: Kernel, paths: list[str]
) -> None:
    kernel.results[0] = -errno.ENOSPC
    disk = disk_on()
    with pytest.raises(SyncFailedError, match="space") as caught:
        await disk.sync(paths)
    assert caught.value.filename == paths[0]
    disk.close()


async def test_the_owner_hears_of_a_failed_sync_that_nobody_waits_for_any_more(
    disk_on: Callable[[], RealDisk], kernel: Kernel, paths: list[str]
) -> None:
    disk = disk_on()
    owned, others = paths[1], [paths[0], *paths[2:]]
    disown = disk.own(owned)
    await disk.sync(paths)
    kernel.results[len(paths)] = -errno.EIO
    syncing = asyncio.ensure_future(disk.sync([owned]))
    syncing.cancel()
    await until(lambda: kernel.told == len(paths) + 1)
    with pytest.raises(SyncFailedError, match="an earlier sync failed"):
        await disk.sync([owned])
    await disk.sync(others)
    disown()
    disk.close()


async def test_a_disk_gives_what_finds_no_room_in_the_kernel_to_the_process(
    disk_on: Callable[[], RealDisk], kernel: Kernel, paths: list[str]
) -> None:
    disk = disk_on()
    await asyncio.gather(*(disk.sync(paths) for _ in range(CAPACITY)))
    assert 0 < kernel.submitted < CAPACITY * len(paths)
    disk.close()


async def test_an_open_file_is_synced_by_its_own_handle(
    disk_on: Callable[[], RealDisk],
    kernel: Kernel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = str(tmp_path / "f")
    disk = disk_on()
    file = disk.open(path, create=True)
    await disk.sync([path])  # starts what the disk needs for syncs
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", None)
        await disk.sync([path])
    assert kernel.inodes == [file.inode]
    file.give_back()
    await disk.sync([path])
    assert kernel.inodes == [file.inode]
    file.close()
    await disk.sync([path])
    assert kernel.submitted == 4
    disk.close()


async def test_a_path_that_names_another_file_now_has_that_one_synced(
    disk_on: Callable[[], RealDisk], kernel: Kernel, tmp_path: Path
) -> None:
    """As when a log moves to another directory, and takes the name that the old one had."""
    old, new = tmp_path / "log", tmp_path / "log-future"
    disk = disk_on()
    files = []
    for directory in (old, new):
        directory.mkdir()
        files.append(disk.open(str(directory / "segment"), create=True))
    disk.rename(str(old), str(tmp_path / "log-stray"))
    disk.rename(str(new), str(old))
    for _ in range(2):
        await disk.sync([str(old / "segment")])
        assert kernel.inodes == [files[1].inode]
    await disk.sync([str(new / "segment")])
    assert kernel.submitted == 2  # nothing has this name any more
    for file in files:
        file.close()
    disk.close()
