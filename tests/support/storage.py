"""For tests of storage: a disk in memory that forgets unsynced bytes."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from stele.wire.batch import read_header
from stele.world import Buffer
from storage.directory import LogDirectory
from storage.log import PartitionLog
from storage.long_work import parts_of
from storage.retention import retained_from
from world.disk import ReadFailedError, SyncFailedError

NAME_MAX_BYTES = 255


def append(log: PartitionLog, batch: bytearray, *, epoch: int = 0, now_ms: int = 1_000_000) -> int:
    """Append as leader. Returns the base offset."""
    result = log.append_as_leader(batch, read_header(batch), leader_epoch=epoch, now_ms=now_ms)
    return result.base_offset


def commit(log: PartitionLog, high_watermark: int) -> None:
    """Set the high watermark, as the partition's machine does."""
    log.ask_high_watermark = lambda: high_watermark


async def enforce_retention(directory: LogDirectory, now_ms: int = 1_000_000) -> int:
    """Apply retention as a broker does. Returns how many segments were deleted."""
    for log in list(directory.logs.values()):
        start_offset = await retained_from(log, log.ask_high_watermark(), now_ms)
        if log.offline is None:
            log.advance_start_offset(start_offset)
            log.leave_dead_segment()
            list(log.expiring_producers(now_ms))
    return await directory.retire_dead_segments()


@dataclass(eq=False)
class Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0
    durable_as_of: int = 0  # the number of the capture: a sync that ends late undoes nothing


class Tear(Protocol):
    """Returns how much of ``unsynced`` appended bytes reached the disk."""

    def __call__(self, unsynced: int, /) -> int: ...


class MemoryDisk:
    """A ``world.disk.Disk`` that loses at ``power_loss`` whatever was not synced."""

    def __init__(self) -> None:
        self.inodes: dict[str, Inode] = {}
        self.directories: set[str] = {"/", "/d"}
        self.durable_inodes: dict[str, Inode] = {}
        self.durable_directories: set[str] = {"/", "/d"}
        self.locks: set[str] = set()
        self.capacity: int | None = None  # the most bytes of all files together
        self.append_error: int | None = None  # errno of every append
        self.sync_error: int | None = None  # errno of the next sync
        self.open_error: int | None = None  # errno of every operation that needs a file handle
        self.unreadable: set[str] = set()  # paths that cannot be read
        self.cold = False  # reads return None until the range was warmed
        self.warmed: list[tuple[str, int, int]] = []
        self.synced: list[list[str]] = []  # the paths of each group
        self.time_ms = 0  # what the wall clock of the disk's machine shows
        self.gate: asyncio.Event | None = None  # groups wait for it
        self._captures = 0  # number of captures of files and directories by syncs
        self._entries_as_of: dict[str, int] = {}  # by directory: the capture that is durable
        # Renames of directories, each with the number of captures before it.
        self._renames: list[tuple[int, str, str]] = []

    # ------------------------------------------------------------------------- damage

    def power_loss(self, tear: Tear = lambda unsynced: 0) -> None:
        self.directories = set(self.durable_directories)
        self.inodes = {
            path: inode
            for path, inode in self.durable_inodes.items()
            if os.path.dirname(path) in self.directories
        }
        for _, inode in sorted(self.inodes.items()):
            kept = len(inode.durable)
            if bytes(inode.data[:kept]) == inode.durable:
                unsynced = len(inode.data) - kept
                del inode.data[kept + tear(unsynced) :]
            else:
                inode.data = bytearray(inode.durable)
            inode.durable = bytes(inode.data)
        self.durable_inodes = dict(self.inodes)
        self.locks.clear()

    def flip(self, path: str, position: int) -> None:
        self.inodes[path].data[position] ^= 0xFF

    # ------------------------------------------------------------------------- Disk

    def _need_handle(self, path: str) -> None:
        if self.open_error is not None:
            raise OSError(self.open_error, os.strerror(self.open_error), path)
        if max(map(len, path.split("/"))) > NAME_MAX_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self._need_handle(path)
        if path not in self.inodes:
            if not create or os.path.dirname(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.inodes[path] = Inode()
        return MemoryFile(self, path, self.inodes[path])

    def exists(self, path: str) -> bool:
        return path in self.inodes or path in self.directories

    def list(self, path: str) -> list[str]:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        names = {*self.inodes, *self.directories}
        return sorted(
            os.path.basename(name) for name in names if os.path.dirname(name) == path != name
        )

    def make_directory(self, path: str) -> None:
        while path not in self.directories:
            self.directories.add(path)
            path = os.path.dirname(path)

    def rename(self, source: str, target: str) -> None:
        if len(os.path.basename(target)) > NAME_MAX_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), target)
        if source in self.inodes:
            self.inodes[target] = self.inodes.pop(source)
            return
        if source not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        # Names below a directory move with it, on disk as well, since only its own entry changes.
        for names in (self.inodes, self.durable_inodes):
            for path in [p for p in names if p.startswith(f"{source}/")]:
                names[target + path[len(source) :]] = names.pop(path)
        for path in [p for p in self.directories if f"{p}/".startswith(f"{source}/")]:
            self.directories.remove(path)
            self.directories.add(target + path[len(source) :])
        self.durable_directories = set(self.directories)
        self._renames.append((self._captures, source, target))
        if source in self._entries_as_of:
            self._entries_as_of[target] = self._entries_as_of.pop(source)

    def _renamed(self, path: str, number: int) -> str:
        """Where a path of the capture ``number`` is now: a sync is of a directory, not of a name
        that another one may have got."""
        for before, source, target in self._renames:
            if before >= number and f"{path}/".startswith(f"{source}/"):
                path = target + path[len(source) :]
        return path

    def remove(self, path: str) -> None:
        if path not in self.inodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del self.inodes[path]

    def remove_tree(self, path: str) -> None:
        for name in [p for p in self.inodes if p.startswith(f"{path}/")]:
            del self.inodes[name]
        self.directories = {p for p in self.directories if not f"{p}/".startswith(f"{path}/")}

    def read_file(self, path: str) -> bytes:
        return self.open(path).read_now(0, len(self.open(path).inode.data))

    def modified_ms(self, path: str) -> int:
        return self.inodes[path].modified_ms

    def free_bytes(self, path: str) -> int:
        return 1 << 40 if self.capacity is None else self.capacity - self.used()

    def total_bytes(self, path: str) -> int:
        return 1 << 40 if self.capacity is None else self.capacity

    def used(self) -> int:
        return sum(len(inode.data) for inode in self.inodes.values())

    def lock(self, path: str) -> Callable[[], None]:
        if path in self.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self.locks.add(path)
        return lambda: self.locks.discard(path)

    def own(self, path: str) -> Callable[[], None]:
        return lambda: None

    def replace_file_now(self, path: str, data: bytes) -> None:
        self._need_handle(path)
        if self.capacity is not None and self.used() + len(data) > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.inodes[path] = Inode(bytearray(data))
        self.sync_now(path)
        self.sync_now(os.path.dirname(path))

    def sync_now(self, path: str) -> None:
        self._capture(path)()

    def begin_sync(self, paths: Sequence[str]) -> Callable[[], None]:
        """Begin a sync of the paths that still exist. Returns the function that ends it."""
        settles = [self._capture(path) for path in paths if self.exists(path)]

        def settle() -> None:
            for each in settles:
                each()

        return settle

    def _capture(self, path: str) -> Callable[[], None]:
        """Capture what a sync that begins now makes durable. Returns the function that ends it."""
        if self.sync_error is not None:
            raise SyncFailedError(self.sync_error, os.strerror(self.sync_error), path)
        self._need_handle(path)
        self._captures += 1
        number = self._captures
        if path in self.inodes:
            inode, data = self.inodes[path], bytes(self.inodes[path].data)

            def settle() -> None:
                if number > inode.durable_as_of:
                    inode.durable, inode.durable_as_of = data, number

            return settle
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        files = {p: inode for p, inode in self.inodes.items() if os.path.dirname(p) == path}
        below = {p for p in self.directories if os.path.dirname(p) == path}

        def settle_entries() -> None:
            where = self._renamed(path, number)
            if number < self._entries_as_of.get(where, 0):
                return
            self._entries_as_of[where] = number
            old = [p for p in self.durable_inodes if os.path.dirname(p) == where]
            for name in old:
                del self.durable_inodes[name]
            self.durable_inodes.update({self._renamed(p, number): i for p, i in files.items()})
            kept = {p for p in self.durable_directories if os.path.dirname(p) != where or p == "/"}
            self.durable_directories = kept | {self._renamed(p, number) for p in below}

        return settle_entries

    async def replace_file(self, path: str, data: bytes) -> None:
        await asyncio.sleep(0)
        self.replace_file_now(path, data)

    async def sync(self, paths: Sequence[str]) -> None:
        self.synced.append([*paths])
        settle = self.begin_sync(paths)
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        if self.sync_error is not None:
            raise SyncFailedError(self.sync_error, os.strerror(self.sync_error), paths[0])
        settle()

    async def discard(self, paths: Sequence[str]) -> None:
        await asyncio.sleep(0)
        for path in paths:
            if path in self.directories:
                self.remove_tree(path)
            else:
                self.inodes.pop(path, None)

    async def warm(self, path: str, position: int, size: int) -> None:
        await asyncio.sleep(0)
        self.open(path).read_now(position, size)
        self.warmed.append((path, position, size))

    def carry_out(
        self, work: Callable[..., Generator[Any, None, None]], *arguments: Any
    ) -> AsyncGenerator[Any, None]:
        return parts_of(self, work(self, *arguments))


class MemoryFile:
    """An open file of a ``MemoryDisk``."""

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self.disk = disk
        self.path = path
        self.inode = inode

    @property
    def size(self) -> int:
        return len(self.inode.data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        if self.disk.append_error is not None:
            raise OSError(self.disk.append_error, os.strerror(self.disk.append_error), self.path)
        position = self.size
        self.inode.modified_ms = self.disk.time_ms
        data = b"".join(buffers)
        if self.disk.capacity is not None:
            room = max(self.disk.capacity - self.disk.used(), 0)
            self.inode.data += data[:room]
            if room < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        else:
            self.inode.data += data
        return position

    def read(self, position: int, size: int) -> bytes | None:
        if self.disk.cold:
            in_memory = max(
                (
                    at + count - position
                    for path, at, count in self.disk.warmed
                    if path == self.path and at <= position
                ),
                default=0,
            )
            if in_memory <= 0:
                return None
            size = min(size, in_memory)
        return self.read_now(position, size)

    def read_now(self, position: int, size: int) -> bytes:
        if self.path in self.disk.unreadable:
            raise ReadFailedError(errno.EIO, os.strerror(errno.EIO), self.path)
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        return bytes(self.inode.data[position : position + size])

    def truncate(self, size: int) -> None:
        del self.inode.data[size:]

    def close(self) -> None:
        pass
