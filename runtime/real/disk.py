"""The real file system behind ``stele.world.Disk``. Linux first; macOS works for development."""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Final

from runtime.real.helper import HelperProcess
from runtime.real.sync_process import HelperSyncError, replace_file, sync_path
from stele.world import Buffer, ReadFailedError, SyncFailedError

_IOV_MAX: Final = 1024
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


class RealFile:
    """An open file. Only this handle writes to it: ``size`` is counted, not asked for."""

    __slots__ = ("_fd", "_nowait", "path", "size")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.size = os.fstat(fd).st_size
        self._nowait = bool(_NOWAIT)  # this file system can tell what is in memory

    def append(self, buffers: Sequence[Buffer]) -> int:
        position = self.size
        if len(buffers) == 1:
            first = buffers[0]
            written = os.write(self._fd, first)
            self.size += written
            if written == len(first):
                return position
            buffers = [memoryview(first)[written:]]
        self._append_all([memoryview(buffer) for buffer in buffers if len(buffer)])
        return position

    def _append_all(self, views: list[memoryview]) -> None:
        """Short writes are continued; the error that stopped one shows at the next."""
        at = 0
        while at < len(views):
            written = os.writev(self._fd, views[at : at + _IOV_MAX])
            self.size += written
            while at < len(views) and written >= len(views[at]):
                written -= len(views[at])
                at += 1
            if written:
                views[at] = views[at][written:]

    def read(self, position: int, size: int) -> bytes | bytearray | None:
        if not self._nowait:
            return self.read_now(position, size)
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise ReadFailedError(error.errno, error.strerror, self.path) from error
            self._nowait = False
            return self.read_now(position, size)
        if count < size:
            del buffer[count:]
        return buffer

    def read_now(self, position: int, size: int) -> bytes | bytearray:
        try:
            return self._read_now(position, size)
        except OSError as error:
            raise ReadFailedError(error.errno, error.strerror, self.path) from error

    def _read_now(self, position: int, size: int) -> bytes | bytearray:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        whole = bytearray(data)
        while len(whole) < size:
            piece = os.pread(self._fd, size - len(whole), position + len(whole))
            if not piece:
                break
            whole += piece
        return whole

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """Waits for the device in two helper processes: one syncs, one reads cold bytes and removes."""

    def __init__(self) -> None:
        self._syncer = HelperProcess("sync")
        self._reader = HelperProcess("read")

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> builtins.list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def read_file(self, path: str) -> bytes:
        with builtins.open(path, "rb") as file:
            try:
                return file.read()
            except OSError as error:
                raise ReadFailedError(error.errno, error.strerror, path) from error

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return lambda: os.close(fd)

    def replace_file_now(self, path: str, data: bytes) -> None:
        try:
            replace_file(path, data, suffix=".tmp")
        except HelperSyncError as error:
            raise SyncFailedError(error.errno, error.strerror, error.filename) from error

    def sync_now(self, path: str) -> None:
        try:
            sync_path(path)
        except HelperSyncError as error:
            raise SyncFailedError(error.errno, error.strerror, path) from error

    async def replace_file(self, path: str, data: bytes) -> None:
        await self._syncer.call("replace", path, bytes(data))

    async def sync(self, paths: Sequence[str]) -> None:
        if paths:
            await self._syncer.call("sync", builtins.list(paths))

    async def discard(self, paths: Sequence[str]) -> None:
        if paths:
            await self._reader.call("discard", builtins.list(paths))

    async def warm(self, path: str, position: int, size: int) -> None:
        await self._reader.call("warm", path, position, size)

    @property
    def sync_process_id(self) -> int | None:
        """Of the helper that syncs, once it runs."""
        return self._syncer.pid

    def close(self) -> None:
        """End the helper processes. Idempotent."""
        self._syncer.close()
        self._reader.close()
