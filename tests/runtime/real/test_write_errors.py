"""No write-back error is lost: which handle a sync goes by, and what closes with unsynced bytes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from runtime.real import sync_process
from runtime.real.disk import RealDisk, RealFile
from runtime.real.held_directories import HeldDirectories
from runtime.real.helper import HelperProcess
from runtime.real.kept_handles import KEPT_MAX
from runtime.real.kernel_sync import GROUP_FILES
from runtime.real.sync_process import Worker, tells_write_errors
from tests.support.timing import until
from world.disk import SyncFailedError


class Kernel:
    """The errors of one file system, and how many of them each open file description has seen."""

    def __init__(self) -> None:
        self.errors = 0
        self.told: dict[int, int] = {}

    def syncfs(self, handle: int) -> int:
        opened = os.lseek(handle, 0, os.SEEK_CUR)  # a duplicate has the same position
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
        self._next_number = 0
        self.kernel = Kernel()
        self.asked: list[str] = []
        self.gate: asyncio.Event | None = None
        """The helper has carried out a request, and answers it when this is set."""

    def hold(self, name: str, *, tells: bool = True) -> Callable[[], None]:
        (self.root / name).mkdir()
        release = self.disk.lock(f"{self.root}/{name}/.lock")
        self._number((f"{self.root}/{name}",), tells=tells)
        return release

    def own(self, name: str) -> Callable[[], None]:
        disown = self.disk.own(f"{self.root}/{name}")
        (self.root / name).mkdir()
        self._number((f"{self.root}/{name}",), tells=True)
        return disown

    def _number(self, paths: Sequence[str], *, tells: bool) -> None:
        """Give each open file description a number of its own: its position."""
        held = self.disk.held.of(paths)
        assert held is not None
        held.tells = tells
        for handle in (held.number, held.number_on_loop):
            self._next_number += 1
            os.lseek(handle, self._next_number, os.SEEK_SET)

    def paths(self, name: str, count: int = GROUP_FILES + 1) -> list[str]:
        paths = [f"{self.root}/{name}/{number}.log" for number in range(count)]
        for path in paths:
            Path(path).touch()
        return paths

    def close_unsynced(self, file: RealFile) -> None:
        """There is one handle, so none is kept for the sync of the file."""
        file.close()
        self.disk.open(f"{self.root}/one more", create=True).close()

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
            if self.gate is not None:
                await self.gate.wait()


def open_handles() -> set[int | None]:
    """The inodes of this process's open files."""
    inodes: set[int | None] = set()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.fstat(int(each)).st_ino)
    return inodes


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


async def test_every_directory_of_the_file_system_hears_of_an_error(scene: Scene) -> None:
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


async def test_a_group_waits_only_for_its_files_unless_they_are_many(scene: Scene) -> None:
    release = scene.hold("a")
    await scene.disk.sync(scene.paths("a", GROUP_FILES))
    assert scene.asked == []
    await scene.disk.sync(scene.paths("a", GROUP_FILES + 1))
    assert scene.asked == ["sync_file_system"]
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
        scene.close_unsynced(file)
    else:
        other = scene.disk.open(f"{scene.root}/a/g", create=True)  # there is one handle
        other.close()
    scene.kernel.errors += 1
    with pytest.raises(SyncFailedError):
        await scene.disk.sync([file.path])
    with pytest.raises(SyncFailedError, match="an earlier sync failed"):
        await scene.disk.sync([file.path])
    assert scene.asked == ["sync_file_system"]
    release()


async def test_a_sync_of_the_file_system_settles_what_was_closed_before_it(scene: Scene) -> None:
    release = scene.hold("a")
    file = scene.disk.open(f"{scene.root}/a/f", create=True)
    other = scene.disk.open(f"{scene.root}/a/g", create=True)
    await scene.disk.sync([file.path])
    file.append([b"x"])
    scene.close_unsynced(file)
    scene.gate = asyncio.Event()
    first = asyncio.ensure_future(scene.disk.sync([file.path]))
    await until(lambda: bool(scene.asked))
    other.append([b"x"])
    scene.close_unsynced(other)
    second = asyncio.ensure_future(scene.disk.sync([file.path]))
    await asyncio.sleep(0)
    assert scene.asked == ["sync_file_system"]  # the second waits for its turn
    scene.gate.set()
    await asyncio.gather(first, second)
    assert scene.asked == ["sync_file_system"] * 2
    await scene.disk.sync([file.path])  # in the kernel, by a handle of the file
    assert len(scene.asked) == 2
    release()


async def test_a_settled_directory_leaves_what_another_is_owed(scene: Scene) -> None:
    releases = [scene.hold("a"), scene.hold("b")]
    paths = [f"{scene.root}/{name}/f" for name in "ab"]
    for path in paths:
        file = scene.disk.open(path, create=True)
        await scene.disk.sync([path])
        file.append([b"x"])
        scene.close_unsynced(file)
    for path in paths + paths:
        await scene.disk.sync([path])
    assert scene.asked == ["sync_file_system"] * 2
    for release in releases:
        release()


async def test_the_owner_hears_of_an_error_even_if_another_sync_had_it_first(scene: Scene) -> None:
    release = scene.hold("a")
    paths = scene.paths("a")
    await scene.disk.sync(paths)
    scene.kernel.errors += 1
    scene.gate = asyncio.Event()
    first = asyncio.ensure_future(scene.disk.sync(paths))
    await until(lambda: len(scene.asked) == 2)
    second = asyncio.ensure_future(scene.disk.sync(paths))
    await asyncio.sleep(0)
    assert not second.done()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()  # the error is known, but not here yet
    scene.gate.set()
    with pytest.raises(SyncFailedError, match="an earlier sync failed"):
        await second
    for path in (paths[0], f"{scene.root}/a"):
        with pytest.raises(SyncFailedError):
            scene.disk.sync_now(path)
        with pytest.raises(SyncFailedError):
            scene.disk.replace_file_now(path, b"x")
        with pytest.raises(SyncFailedError):
            await scene.disk.replace_file(path, b"x")
    release()


async def test_a_sync_on_the_loop_gets_the_error_of_one_under_way(scene: Scene) -> None:
    release = scene.hold("a")
    file = scene.disk.open(f"{scene.root}/a/f", create=True)
    await scene.disk.sync([file.path])
    file.append([b"x"])
    scene.close_unsynced(file)
    scene.kernel.errors += 1
    scene.gate = asyncio.Event()
    first = asyncio.ensure_future(scene.disk.sync([file.path]))
    await until(lambda: bool(scene.asked))
    with pytest.raises(SyncFailedError):
        scene.disk.sync_now(file.path)
    scene.gate.set()
    with pytest.raises(SyncFailedError):
        await first
    release()


async def test_an_owner_within_a_directory_is_told_apart(scene: Scene) -> None:
    """The metadata log within a log directory."""
    release = scene.hold("a")
    disown = scene.own("a/metadata")
    scene.kernel.errors += 1
    for name in ("a/metadata", "a"):
        with pytest.raises(SyncFailedError, match="Input/output error"):
            await scene.disk.sync(scene.paths(name))
    disown()
    disown()
    with pytest.raises(SyncFailedError):
        await scene.disk.sync(scene.paths("a/metadata"))  # it is the directory's now
    release()


async def test_the_handle_of_a_closed_file_is_kept_for_its_sync(tmp_path: Path) -> None:
    """So an index at the end of a segment makes no sync one of the whole file system."""
    disk = RealDisk()
    release = disk.lock(f"{tmp_path}/.lock")
    first = disk.open(f"{tmp_path}/first", create=True)
    await disk.sync([first.path])
    held = disk.held.of((first.path,))
    assert held is not None
    open_before = open_handles()
    file = disk.open(f"{tmp_path}/index", create=True)
    file.append([b"x"])
    inode = file.inode
    file.close()
    assert open_handles() == open_before | {inode}
    await disk.sync([file.path])
    assert open_handles() == open_before
    assert not held.is_owed
    release()
    disk.close()


@pytest.mark.parametrize(
    ("how", "is_owed"), [("removed", False), ("replaced", False), ("renamed", True), ("many", True)]
)
async def test_a_kept_handle_is_closed_when_nobody_will_sync_its_path(
    tmp_path: Path, how: str, is_owed: bool
) -> None:
    disk = RealDisk()
    release = disk.lock(f"{tmp_path}/.lock")
    other = disk.open(f"{tmp_path}/other", create=True)
    await disk.sync([other.path])
    held = disk.held.of((other.path,))
    assert held is not None
    disk.make_directory(f"{tmp_path}/tree")
    file = disk.open(f"{tmp_path}/tree/f", create=True)
    file.append([b"x"])
    inode = file.inode
    file.close()
    assert inode in open_handles()
    match how:
        case "removed":
            disk.remove_tree(f"{tmp_path}/tree")
        case "replaced":
            disk.rename(other.path, file.path)
        case "renamed":
            disk.rename(f"{tmp_path}/tree", f"{tmp_path}/later")
        case _:
            for number in range(KEPT_MAX):
                each = disk.open(f"{tmp_path}/{number}", create=True)
                each.append([b"x"])
                each.close()
    assert inode not in open_handles()
    if disk.held.of((other.path,)).tells:  # type: ignore[union-attr]
        assert held.is_owed == is_owed
    release()
    disk.close()


async def test_a_file_that_is_opened_again_has_the_unsynced_bytes(tmp_path: Path) -> None:
    disk = RealDisk()
    release = disk.lock(f"{tmp_path}/.lock")
    file = disk.open(f"{tmp_path}/f", create=True)
    await disk.sync([file.path])
    file.append([b"x"])
    file.close()
    again = disk.open(f"{tmp_path}/f")
    dirty = [again.is_dirty]
    await disk.sync([again.path])
    dirty.append(again.is_dirty)
    assert dirty == [True, False]
    release()
    disk.close()


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
    assert not held.release("/data", "/data2")
    assert held.release("/data", "/data")
    assert not held.release("/data", "/data")
    assert held.of(["/data/t-0"]) is None


def test_only_its_owner_hears_of_a_failed_sync() -> None:
    held = HeldDirectories[str]()
    for path in ("/data", "/data/metadata", "/data2"):
        held.hold(path, path)
    held.failed(["/data/metadata/log"], OSError(errno.EIO, "first"))
    held.failed(["/data/metadata/log"], OSError(errno.EIO, "second"))
    held.failed(["/elsewhere"], OSError(errno.EIO, "of nobody"))
    with pytest.raises(SyncFailedError, match="first"):
        held.check(["/data/metadata/quorum-state"])
    for paths in (["/data/t-0"], ["/data/metadata/log", "/data/t-0"], ["/data2"], ["/elsewhere"]):
        held.check(paths)
    held.release("/data/metadata", "/data/metadata")
    held.check(["/data/metadata/log"])
