"""No write-back error is lost: which handle a sync goes by, and what closes with unsynced bytes."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.real import sync_process
from runtime.real.disk import RealDisk
from runtime.real.held_directories import HeldDirectories
from runtime.real.helper import HelperProcess
from runtime.real.sync_process import SYNCFS_FROM_FILES, Worker, tells_write_errors
from world.disk import SyncFailedError


class Kernel:
    """The errors of one file system, and the errors that each open directory was told of."""

    def __init__(self) -> None:
        self.errors = 0
        self.told: dict[str, int] = {}

    def syncfs(self, handle: int) -> int:
        opened = os.readlink(f"/proc/self/fd/{handle}")
        if self.errors > self.told.get(opened, 0):
            self.told[opened] = self.errors
            ctypes.set_errno(errno.EIO)
            return -1
        return 0


class Scene:
    """A disk whose helper works in this process, on a file system that reports errors."""

    def __init__(self, disk: RealDisk, root: Path) -> None:
        self.disk = disk
        self.root = root
        self.kernel = Kernel()
        self.asked: list[str] = []

    def hold(self, name: str, *, tells: bool = True) -> Callable[[], None]:
        (self.root / name).mkdir()
        release = self.disk.lock(f"{self.root}/{name}/.lock")
        held = self.disk.held.of((f"{self.root}/{name}",))
        assert held is not None
        held.tells = tells
        return release

    def paths(self, name: str, count: int = SYNCFS_FROM_FILES) -> list[str]:
        paths = [f"{self.root}/{name}/{number}.log" for number in range(count)]
        for path in paths:
            Path(path).touch()
        return paths

    async def call(
        self, helper: HelperProcess, kind: str, *arguments: object, handle: int | None = None
    ) -> None:
        self.asked.append(kind)
        handles = [] if handle is None else [handle]
        try:
            Worker().handle(kind, *arguments, handles=handles)
        except sync_process.HelperSyncError as error:
            raise SyncFailedError(error.errno, error.strerror, error.filename) from error
        finally:
            for each in handles:
                os.close(each)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    disk = RealDisk(max_handles=1)
    scene = Scene(disk, tmp_path)

    async def call(helper: HelperProcess, kind: str, *arguments: object, **rest: int) -> None:
        await scene.call(helper, kind, *arguments, **rest)

    monkeypatch.setattr(HelperProcess, "call", call)
    monkeypatch.setattr(sync_process, "_syncfs", lambda: scene.kernel.syncfs)
    yield scene
    disk.close()


async def test_an_error_is_told_to_every_directory_of_the_file_system(scene: Scene) -> None:
    releases = [scene.hold("a"), scene.hold("b")]
    for name in "ab":
        await scene.disk.sync(scene.paths(name))
    scene.kernel.errors += 1
    for name in "ab":
        with pytest.raises(SyncFailedError):
            await scene.disk.sync(scene.paths(name))
    assert scene.asked == ["sync_file_system"] * 4
    for release in releases:
        release()


async def test_a_file_system_that_hides_errors_is_not_synced_as_a_whole(scene: Scene) -> None:
    release = scene.hold("a", tells=False)
    await scene.disk.sync(scene.paths("a"))
    await scene.disk.sync(scene.paths("a", 200))  # more than the kernel takes at once
    assert scene.asked == ["sync"]
    release()


@pytest.mark.parametrize("how", ["given back", "closed"])
async def test_after_an_unsynced_handle_was_closed_the_file_system_is_synced(
    scene: Scene, how: str
) -> None:
    release = scene.hold("a")
    file = scene.disk.open(f"{scene.root}/a/f", create=True)
    await scene.disk.sync([file.path])
    file.append([b"x"])
    if how == "closed":
        file.close()
    else:
        other = scene.disk.open(f"{scene.root}/a/g", create=True)  # there is one handle
        other.close()
    scene.kernel.errors += 1
    with pytest.raises(SyncFailedError):
        await scene.disk.sync([file.path])
    await scene.disk.sync([file.path])
    assert scene.asked == ["sync_file_system"] * 2
    await scene.disk.sync([file.path])  # by the file's own handle
    assert len(scene.asked) == 2
    release()


async def test_a_handle_closed_after_its_sync_owes_nothing(scene: Scene) -> None:
    release = scene.hold("a")
    file = scene.disk.open(f"{scene.root}/a/f", create=True)
    await scene.disk.sync([file.path])
    file.append([b"x"])
    await scene.disk.sync([file.path])
    file.close()
    await scene.disk.sync([file.path])
    assert scene.asked == []
    release()


def test_a_sync_that_waits_is_of_the_file_system_too(scene: Scene) -> None:
    release = scene.hold("a")
    file = scene.disk.open(f"{scene.root}/a/f", create=True)
    file.append([b"x"])
    file.close()
    scene.kernel.errors += 1
    with pytest.raises(SyncFailedError):
        scene.disk.sync_now(file.path)
    release()


async def test_elsewhere_a_handle_is_synced_before_it_is_given_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = scene.hold("a", tells=False)
    file = scene.disk.open(f"{scene.root}/a/f", create=True)
    file.append([b"x"])

    def fail(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        scene.disk.open(f"{scene.root}/a/g", create=True).close()
    with pytest.raises(SyncFailedError):
        await scene.disk.sync([file.path])
    with pytest.raises(SyncFailedError):
        scene.disk.sync_now(file.path)
    file.close()
    release()


def test_only_some_kernels_and_file_systems_tell_all_errors(tmp_path: Path) -> None:
    with open(os.devnull) as device, open("/proc/self/stat") as process:
        for file in (device, process):
            assert not tells_write_errors(file.fileno())
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        newer = tells_write_errors(handle, "6.1.0-13-amd64")
        assert tells_write_errors(handle, "5.17.0") == newer
        for older in ("5.16.20-200.fc35.x86_64", "4.18.0", "5.8"):
            assert not tells_write_errors(handle, older)
    finally:
        os.close(handle)


def test_the_innermost_directory_counts() -> None:
    held = HeldDirectories[str]()
    for path in ("/data", "/data/metadata", "/data2"):
        held.hold(path, path)
    assert held.of(["/data/t-0/0.log", "/data"]) == "/data"
    assert held.of(["/data/metadata/log"]) == "/data/metadata"
    assert held.of(["/data/metadata/log", "/data/t-0"]) == "/data"
    assert held.of(["/data2/t-0", "/data/t-0"]) is None
    assert held.of(["/data3"]) is None
    assert held.release("/data") == "/data"
    assert held.of(["/data/t-0"]) is None
