"""One process's view of its machine's disk."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from chaos.sim.world.disk import (
    NAME_MAX_BYTES,
    Directory,
    Inode,
    Owner,
    ProcessDeadError,
    VirtualDisk,
    os_error,
    parts,
)
from chaos.sim.world.write_errors import WriteErrorHandle
from runtime.real.held_directories import HeldDirectories
from stele.world import Buffer
from storage.long_work import parts_of
from world.disk import SyncFailedError


def _check_name(path: str) -> None:
    if any(len(part) > NAME_MAX_BYTES for part in parts(path)):
        raise os_error(errno.ENAMETOOLONG, path)


class SimDisk:
    """One process's view of its machine's disk: ``world.disk.Disk``."""

    def __init__(self, disk: VirtualDisk, owner: Owner) -> None:
        self._disk = disk
        self._owner = owner
        self._held = HeldDirectories[WriteErrorHandle]()

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._alive()
        _check_name(path)
        self._disk.need_handle(path)
        self._disk.need_device(path)
        node = self._disk.find(path)
        if node is None and create:
            node = Inode()
            self._disk.change((self._parent(path), posixpath.basename(path), node))
        elif node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return SimFile(self._disk, self._owner, node, path)

    def exists(self, path: str) -> bool:
        self._alive()
        return not self._disk.is_dead(path) and self._disk.find(path) is not None

    def list(self, path: str) -> list[str]:
        self._alive()
        self._disk.need_handle(path)
        self._disk.need_device(path)
        return sorted(self._disk.directory(path).entries)

    def make_directory(self, path: str) -> None:
        self._alive()
        _check_name(path)
        self._disk.need_device(path)
        current = ""
        for name in parts(path):
            parent = self._disk.directory(current or "/")
            current = f"{current}/{name}"
            if name not in parent.entries:
                self._disk.change((parent, name, Directory()))
        self._disk.directory(path)

    def rename(self, source: str, target: str) -> None:
        self._alive()
        _check_name(target)
        self._disk.need_device(source, target)
        node = self._disk.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        replaced = self._disk.find(target)
        if isinstance(replaced, Directory) and replaced.entries:
            raise os_error(errno.ENOTEMPTY, target)
        self._disk.change(
            (self._parent(source), posixpath.basename(source), None),
            (self._parent(target), posixpath.basename(target), node),
        )

    def remove(self, path: str) -> None:
        self._alive()
        self._disk.need_device(path)
        self._disk.file(path)
        self._disk.change((self._parent(path), posixpath.basename(path), None))

    def remove_tree(self, path: str) -> None:
        self._alive()
        self._disk.need_handle(path)
        self._disk.need_device(path)
        directory = self._disk.directory(path)
        for name in sorted(directory.entries):
            child = posixpath.join(path, name)
            if isinstance(directory.entries[name], Directory):
                self.remove_tree(child)
            else:
                self.remove(child)
        self._disk.change((self._parent(path), posixpath.basename(path), None))

    def read_file(self, path: str) -> bytes:
        self._alive()
        inode = self._disk.file(path)
        self._disk.need_handle(path)
        self._disk.check_read(inode, path, 0, len(inode.data))
        return bytes(inode.data)

    def modified_ms(self, path: str) -> int:
        self._alive()
        return self._disk.file(path).modified_ms

    def free_bytes(self, path: str) -> int:
        self._alive()
        return max(0, self.total_bytes(path) - self._disk.used_bytes())

    def total_bytes(self, path: str) -> int:
        self._alive()
        self._disk.need_device(path)
        quota = self._disk.faults.quota_bytes
        return 1 << 40 if quota is None else quota

    def lock(self, path: str) -> Callable[[], None]:
        if not self.exists(path):
            self.open(path, create=True).close()
        holder = self._disk.locks.get(path)
        if holder is not None and not holder.dead:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock", path)
        self._disk.locks[path] = self._owner
        disown = self.own(posixpath.dirname(path))

        def release() -> None:
            disown()
            if self._disk.locks.get(path) is self._owner:
                del self._disk.locks[path]

        return release

    def own(self, path: str) -> Callable[[], None]:
        handle = WriteErrorHandle(self._disk.write_errors)
        self._held.hold(path, handle)

        def disown() -> None:
            self._held.release(path, handle)

        return disown

    def replace_file_now(self, path: str, data: bytes) -> None:
        temporary, directory = f"{path}.tmp", posixpath.dirname(path)
        self._disk.need_handle(directory)
        with self._removed_on_error(temporary):
            self._write_anew(temporary, data)
            self.sync_now(temporary)
            self.rename(temporary, path)
        self._sync_opened(directory)

    def sync_now(self, path: str) -> None:
        self._alive()
        self._disk.need_device(path)
        if self._disk.find(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._disk.need_handle(path)
        self._sync_opened(path)

    def _sync_opened(self, path: str) -> None:
        with self._noting([path]):
            self._disk.begin_sync([path])()
        self._disk.note("sync", path)

    async def replace_file(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        with self._removed_on_error(temporary):
            self._write_anew(temporary, data)
            await self.sync([temporary])
            self.rename(temporary, path)
        await self.sync([posixpath.dirname(path)])

    async def sync(self, paths: Sequence[str]) -> None:
        self._alive()
        if not paths:
            return
        with self._noting(paths):
            # The real disk syncs a few files one by one. The whole file system is the harder case.
            finish = self._disk.begin_sync(paths, self._held.of(paths))
            await self._owner.sleep(self._disk.sync_delay_s())
            self._alive()
            finish()
            self._held.check(paths)  # perhaps another sync of the owner was told meanwhile
        self._disk.note("sync", " ".join(paths))

    @contextmanager
    def _noting(self, paths: Sequence[str]) -> Iterator[None]:
        """After a failed sync the later ones of the same owner fail, as on the real disk."""
        self._held.check(paths)
        try:
            yield
        except SyncFailedError as error:
            self._held.failed(paths, error)
            raise

    async def discard(self, paths: Sequence[str]) -> None:
        self._alive()
        for path in paths:
            await self._owner.sleep(self._disk.sync_delay_s())
            self._alive()
            self._disk.need_device(path)
            node = self._disk.find(path)
            if isinstance(node, Directory):
                self.remove_tree(path)
            elif node is not None:
                self.remove(path)

    async def warm(self, path: str, position: int, size: int) -> None:
        self._alive()
        inode = self._disk.file(path)
        await self._owner.sleep(self._disk.sync_delay_s())
        self._alive()
        self._disk.check_read(inode, path, position, size)
        inode.warm_until = self._disk.now() + 0.1

    def carry_out(
        self, work: Callable[..., Generator[Any, None, None]], *arguments: Any
    ) -> AsyncGenerator[Any, None]:
        self._alive()
        return parts_of(self, work(self, *arguments))

    def _write_anew(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        try:
            file.truncate(0)
            file.append([data])
        finally:
            file.close()

    @contextmanager
    def _removed_on_error(self, temporary: str) -> Iterator[None]:
        """Remove the temporary file on an error, as the real disk does: a full one needs room."""
        try:
            yield
        except OSError:
            with suppress(OSError):
                self.remove(temporary)
            raise

    def _parent(self, path: str) -> Directory:
        return self._disk.directory(posixpath.dirname(path))

    def _alive(self) -> None:
        if self._owner.dead:
            raise ProcessDeadError


class SimFile:
    """An open file: ``world.disk.File``. It stays readable after its name was removed."""

    def __init__(self, disk: VirtualDisk, owner: Owner, inode: Inode, path: str) -> None:
        self._disk = disk
        self._owner = owner
        self._inode = inode
        self._path = path
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self._inode.data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._usable()
        return self._disk.append(self._inode, self._path, buffers)

    def read(self, position: int, size: int) -> bytes | None:
        self._usable()
        if self._disk.is_dead(self._path):
            return None  # as of bad sectors
        cold = self._disk.faults.cold_read
        if self._inode.bad_sectors and self._disk.is_bad(self._inode, position, size):
            return None  # bytes that cannot be read are never in memory
        if cold and self._inode.warm_until < self._disk.now() and self._disk.rng.random() < cold:
            return None
        return self.read_now(position, size)

    def read_now(self, position: int, size: int) -> bytes:
        self._usable()
        self._disk.check_read(self._inode, self._path, position, size)
        return bytes(memoryview(self._inode.data)[position : position + size])

    def truncate(self, size: int) -> None:
        self._usable()
        self._disk.need_device(self._path)
        if self._disk.on_cut is not None and size < self.size:
            self._disk.on_cut(self._path, size)
        self._disk.truncate(self._inode, size)

    def close(self) -> None:
        self._closed = True

    def _usable(self) -> None:
        if self._owner.dead:
            raise ProcessDeadError
        if self._closed:
            raise ValueError(f"{self._path} is closed")
