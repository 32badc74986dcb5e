"""The real file system behind ``world.disk.Disk``. Linux first; macOS works for development."""

from __future__ import annotations

import asyncio
import builtins
import errno
import fcntl
import logging
import math
import os
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Final

from runtime.real.file_handles import FileHandles
from runtime.real.held_directories import DirectoryHandle, HeldDirectories
from runtime.real.helper import HelperDiedError, HelperProcess
from runtime.real.kept_handles import KeptHandles
from runtime.real.kernel_sync import GROUP_FILES, KernelSync, UnsupportedError
from runtime.real.named_files import NamedFiles
from runtime.real.sync_process import (
    SYNCFS_FROM_FILES,
    HelperSyncError,
    advise_random,
    replace_file,
    sync_file_system,
    sync_path,
)
from runtime.real.unsynced_files import UnsyncedFiles
from stele.world import Buffer
from storage.cold_range import COLD_BYTES
from storage.errors import Failure
from world.disk import ReadFailedError, SyncFailedError

logger = logging.getLogger(__name__)

_IOV_MAX: Final = 1024
_FLAGS: Final = os.O_RDWR | os.O_APPEND
_SHORTAGE_S: Final = 0.1
_READER_PAUSE_S: Final = 1.0
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_DOUBTS: Final = 16
_PROBE_BYTES: Final = 1
_WORK_COMMAND: Final = ("-P", "-m", "runtime.real.work_process")
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


class RealFile:
    """An open file. Only this one writes to it: ``size`` is counted, not asked for.

    Its handle may be given back at any time between two calls; the next one takes another.
    """

    __slots__ = (
        "_doubts",
        "_handles",
        "_kept",
        "_names",
        "_nowait",
        "_unsynced",
        "confirmed",
        "handle",
        "inode",
        "is_dirty",
        "path",
        "size",
        "was_used",
    )

    def __init__(
        self,
        path: str,
        fd: int,
        handles: FileHandles,
        names: NamedFiles,
        unsynced: UnsyncedFiles,
        kept: KeptHandles,
    ) -> None:
        self.path = path
        advise_random(fd)
        status = os.fstat(fd)
        self.size = status.st_size
        self.was_used = True
        self.handle = fd  # negative: it was given back, or the file is closed
        self.inode: int | None = status.st_ino  # None: closed
        self._handles = handles
        self._names = names
        self._unsynced = unsynced
        self._kept = kept
        self.is_dirty = False  # whether it has bytes that no sync by its handle covers
        self.confirmed = 0
        names.opened(self)
        kept.opened(self)
        self._nowait = bool(_NOWAIT)  # whether this file system can report what is in memory
        self._doubts = 0
        """So many more reads look first whether the bytes are in memory, since some were not. The
        kernel begins to read whatever is asked for and is not in memory. A sync would wait for
        that."""
        handles.hold(self)

    def _taken(self) -> int:
        self.was_used = True
        return self.handle if self.handle >= 0 else self._open_again()

    def _open_again(self) -> int:
        if self.inode is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        fd = self._handles.open(self.path, _FLAGS)
        if os.fstat(fd).st_ino != self.inode:
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, "another file is in its place", self.path)
        self.handle = fd
        advise_random(fd)
        self._handles.hold(self)
        return fd

    def give_back(self) -> None:
        """Close the handle; the file stays open for its holder."""
        if self.handle >= 0:
            if self.is_dirty:
                self.is_dirty = False
                self._unsynced.given_back(self.path, self.handle)
            os.close(self.handle)
            self.handle = -1

    def append(self, buffers: Sequence[Buffer]) -> int:
        position = self.size
        self.is_dirty = True
        if len(buffers) == 1:
            first = buffers[0]
            written = os.write(self._taken(), first)
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
            written = os.writev(self._taken(), views[at : at + _IOV_MAX])
            self.size += written
            while at < len(views) and written >= len(views[at]):
                written -= len(views[at])
                at += 1
            if written:
                views[at] = views[at][written:]

    def read(self, position: int, size: int) -> bytes | bytearray | None:
        if not self._nowait:
            return self.read_now(position, size)
        self.was_used = True
        handle = self.handle if self.handle >= 0 else self._open_again()
        try:
            if self._doubts:
                size = self._without_doubt(handle, position, size)
            buffer = bytearray(size)
            count = os.preadv(handle, [buffer], position, _NOWAIT)
        except BlockingIOError:
            self._doubts = _DOUBTS
            return None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise ReadFailedError(error.errno, error.strerror, self.path) from error
            self._nowait = False
            return self.read_now(position, size)
        if count < size:
            del buffer[count:]
        return buffer

    def _without_doubt(self, handle: int, position: int, size: int) -> int:
        """How many of the bytes may be asked for: those that seem to be in memory. Raises
        BlockingIOError if none are."""
        self._doubts -= 1
        size = min(size, max(self.size - position, _PROBE_BYTES))
        probe = bytearray(_PROBE_BYTES)
        first = min(size, COLD_BYTES)
        # Not its last byte: a look at the end of an earlier read may have brought in that page.
        os.preadv(handle, [probe], position + first // 2, _NOWAIT)
        if size > first:
            try:
                os.preadv(handle, [probe], position + size - _PROBE_BYTES, _NOWAIT)
            except BlockingIOError:
                self._doubts = _DOUBTS
                return first
        return size

    def read_now(self, position: int, size: int) -> bytes | bytearray:
        handle = self._taken()
        try:
            return _read(handle, position, size)
        except OSError as error:
            raise ReadFailedError(error.errno, error.strerror, self.path) from error

    def truncate(self, size: int) -> None:
        self.is_dirty = True
        os.ftruncate(self._taken(), size)
        self.size = size

    def sync_began(self) -> None:
        """See ``NamedFile``."""
        self.is_dirty = False

    def close(self) -> None:
        if self.is_dirty and self.handle >= 0 and self._kept.keep(self):
            self.handle, self.is_dirty = -1, False
        self.inode = None
        self._names.closed(self)
        self._handles.forget(self)
        if self.is_dirty and self.handle >= 0:
            self.is_dirty = False
            self._unsynced.closed(self.path, self.handle)
        self.give_back()


def _read(handle: int, position: int, size: int) -> bytes | bytearray:
    data = os.pread(handle, size, position)
    if len(data) == size or not data:
        return data
    whole = bytearray(data)
    while len(whole) < size:
        piece = os.pread(handle, size - len(whole), position + len(whole))
        if not piece:
            break
        whole += piece
    return whole


class RealDisk:
    """Waits for the device in the kernel (``kernel_sync``) or in helper processes: one syncs, one
    reads cold bytes and removes, and one, once there is some, does long work.

    If the first dies, every sync that is given to it fails from then on: nobody knows which syncs
    were done. The others keep no state: they are replaced when they die.
    """

    def __init__(
        self,
        *,
        max_handles: int | None = None,
        syncs_in_kernel: bool = True,
        syncs_at_close: bool = False,
    ) -> None:
        """``max_handles``: of files that ``open`` gives; by default half of RLIMIT_NOFILE.
        ``syncs_in_kernel``: where the kernel can; otherwise only the helper process syncs.
        ``syncs_at_close``: for processes that may wait (``UnsyncedFiles``)."""
        self.handles = FileHandles(max_handles)
        self.names = NamedFiles()
        self.held = HeldDirectories[DirectoryHandle]()
        self._unsynced = UnsyncedFiles(self.held, waits=syncs_at_close)
        self.kept = KeptHandles(self.handles, self.names, self._unsynced)
        self._syncs_in_kernel = syncs_in_kernel
        self._kernel: KernelSync | None = None
        self._syncer = HelperProcess("sync")
        self._reader = HelperProcess("read")
        self._reader_began_s = -math.inf
        self._worker: HelperProcess | None = None

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = _FLAGS | (os.O_CREAT if create else 0)
        fd = self.handles.open(path, flags)
        return RealFile(path, fd, self.handles, self.names, self._unsynced, self.kept)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> builtins.list[str]:
        return sorted(self.handles.with_room(lambda: os.listdir(path)))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)
        self.names.changed()
        self.kept.renamed(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)
        self.names.changed()
        self.kept.removed(path)

    def remove_tree(self, path: str) -> None:
        self.names.changed()
        self.kept.removed(path)
        self.handles.with_room(lambda: shutil.rmtree(path))

    def read_file(self, path: str) -> bytes:
        handle = self.handles.open(path, os.O_RDONLY)
        with builtins.open(handle, "rb") as file:
            try:
                return file.read()
            except OSError as error:
                raise ReadFailedError(error.errno, error.strerror, path) from error

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        fd = self.handles.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            directory = os.path.dirname(path)
            disown = self._own(directory, directory)
        except BaseException:
            os.close(fd)
            raise

        def release() -> None:
            disown()
            os.close(fd)

        return release

    def own(self, path: str) -> Callable[[], None]:
        return self._own(path, os.path.dirname(path))

    def _own(self, directory: str, opened: str) -> Callable[[], None]:
        """``opened``: any directory of the same file system."""
        handle = self.handles.with_room(lambda: DirectoryHandle(opened))
        self.held.hold(directory, handle)

        def disown() -> None:
            if self.held.release(directory, handle):
                handle.close()

        return disown

    def replace_file_now(self, path: str, data: bytes) -> None:
        self.held.check((path,))
        self.names.changed()
        try:
            self.handles.with_room(lambda: replace_file(path, data, suffix=".tmp"))
        except HelperSyncError as error:
            self.held.failed((path,), error)
            raise SyncFailedError(error.errno, error.strerror, error.filename) from error

    def sync_now(self, path: str) -> None:
        self._unsynced.check((path,))
        held = self._whole((path,))
        try:
            if held is not None:
                debt = held.debt
                sync_file_system(held.number_on_loop, path)
                self._unsynced.settle(held, debt)
            else:
                self.handles.with_room(lambda: sync_path(path))
        except HelperSyncError as error:
            self.held.failed((path,), error)
            raise SyncFailedError(error.errno, error.strerror, path) from error

    def _whole(self, paths: Sequence[str]) -> DirectoryHandle | None:
        """The handle by which the whole file system is synced for these paths, if it must be, or if
        that is faster."""
        if len(paths) < SYNCFS_FROM_FILES and not self._unsynced.has_debt:
            return None
        held = self.held.of(paths)
        if held is None or not held.tells:
            return None
        is_large = len(paths) >= SYNCFS_FROM_FILES and not self._fits_kernel(paths)
        return held if held.is_owed or is_large else None

    def _fits_kernel(self, paths: Sequence[str]) -> bool:
        """Whether the kernel can sync these side by side, and does it faster than the whole."""
        if self._kernel is None or not self._syncs_in_kernel:
            return False
        return len(paths) <= min(self._kernel.room, GROUP_FILES)

    async def replace_file(self, path: str, data: bytes) -> None:
        self.held.check((path,))
        try:
            await self._call(self._syncer, "replace", path, bytes(data))
        except SyncFailedError as error:
            self.held.failed((path,), error)
            raise
        except HelperDiedError as error:
            raise SyncFailedError(error.errno, error.strerror, path) from error
        finally:
            self.names.changed()

    def sync(self, paths: Sequence[str]) -> Awaitable[None]:
        if self._kernel is not None and self._syncer.pid is not None:
            # The usual case needs no task.
            try:
                self._unsynced.check(paths)
                syncing = self._sync_in_kernel(paths)
            except OSError:  # the task meets it again, and tells it
                syncing = None
            if syncing is not None:
                is_whole = self._kernel.has_begun_whole
                return syncing if is_whole else self._sync_anew(syncing, paths)
        return self._sync_in_time(paths)

    async def _sync_anew(self, partly: asyncio.Future[None], paths: Sequence[str]) -> None:
        """A group that the kernel took only in part. Raises SyncFailedError for that part."""
        try:
            await partly
        except SyncFailedError:
            raise
        except OSError:
            await self._sync_in_time(paths)

    async def _sync_in_time(self, paths: Sequence[str]) -> None:
        while paths:
            try:
                await self._sync(paths)
                return
            except OSError as error:
                if Failure.of(error) is not Failure.SHORTAGE:
                    raise SyncFailedError(error.errno, error.strerror, error.filename) from error
                # No sync has failed yet: the files that this group synced already are synced again.
                logger.error("a sync waits for file handles or memory: %s", error)
                await asyncio.sleep(_SHORTAGE_S)

    async def _sync(self, paths: Sequence[str]) -> None:
        """A small group in the kernel; a large one, or one for which there is no room or handle
        here, in the helper process."""
        self._unsynced.check(paths)
        if self._syncer.pid is None or (self._syncs_in_kernel and self._kernel is None):
            self.handles.with_room(self._begin_syncing)
        if (held := self._whole(paths)) is not None:
            await self._to_its_end(paths, self._sync_whole(held, paths))
            return
        syncing = self._sync_in_kernel(paths)
        if syncing is not None:
            await syncing
        else:
            call = self._call(self._syncer, "sync", builtins.list(paths))
            await self._to_its_end(paths, call)

    async def _to_its_end(self, paths: Sequence[str], syncing: Coroutine[Any, Any, None]) -> None:
        """The result of the sync is recorded even if no caller waits for it any more."""
        await asyncio.shield(asyncio.ensure_future(self._noting(paths, syncing)))

    async def _noting(self, paths: Sequence[str], syncing: Coroutine[Any, Any, None]) -> None:
        try:
            await syncing
        except OSError as error:
            if Failure.of(error) is not Failure.SHORTAGE:
                self.held.failed(paths, error)
            raise

    async def _sync_whole(self, held: DirectoryHandle, paths: Sequence[str]) -> None:
        async with held.turn:
            self.held.check(paths)  # perhaps the one before was told
            handle = self.handles.with_room(lambda: os.dup(held.number))
            debt = held.debt
            await self._syncer.call("sync_file_system", builtins.list(paths), handle=handle)
            self._unsynced.settle(held, debt)

    def _begin_syncing(self) -> None:
        """Take what any sync may need, while there are handles for it."""
        if self._syncs_in_kernel and self._kernel is None:
            try:
                self._kernel = KernelSync(self.names)
                self._kernel.on_failed = self._on_failed
                self.kept.is_on = True
            except UnsupportedError as reason:
                self._leave_syncs_to_the_process(reason)
        if self._syncer.pid is None:
            self._syncer.start()

    def _on_failed(self, path: str, error: OSError) -> None:
        self.held.failed((path,), error)

    def _leave_syncs_to_the_process(self, reason: UnsupportedError) -> None:
        logger.info("syncs are left to the helper process: %s", reason)
        self._syncs_in_kernel = self.kept.is_on = False
        self.kept.give_all_back()

    def _sync_in_kernel(self, paths: Sequence[str]) -> asyncio.Future[None] | None:
        """Begin a group; None if it cannot begin there. Raises OSError."""
        kernel = self._kernel
        if kernel is None or not self._syncs_in_kernel or len(paths) > kernel.room:
            return None
        if self._whole(paths) is not None:
            return None
        try:
            return kernel.sync(paths)
        except UnsupportedError as reason:
            self._leave_syncs_to_the_process(reason)
        except OSError as error:
            if Failure.of(error) is not Failure.SHORTAGE:
                raise
        return None

    async def discard(self, paths: Sequence[str]) -> None:
        if paths:
            try:
                await self._call_reader("discard", builtins.list(paths))
            finally:
                self.names.changed()
                for path in paths:
                    self.kept.removed(path)

    async def warm(self, path: str, position: int, size: int) -> None:
        await self._call_reader("warm", path, position, size)

    async def carry_out(
        self, work: Callable[..., Generator[Any, None, None]], *arguments: Any
    ) -> AsyncGenerator[Any, None]:
        if self._worker is None or self._worker.is_dead:
            self._worker = HelperProcess("work", _WORK_COMMAND)
        helper = self._worker
        if helper.pid is None:
            self.handles.with_room(helper.start)
        ready: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        call = asyncio.get_running_loop().create_task(
            helper.call_in_parts(
                lambda part: ready.put_nowait((part,)),
                "work",
                work.__module__,
                work.__qualname__,
                arguments,
            )
        )
        call.add_done_callback(lambda _: ready.put_nowait(()))
        try:
            while part := await ready.get():
                yield part[0]
            await call
        except HelperDiedError as error:
            helper.close()
            raise OSError(errno.ECHILD, error.strerror) from error
        finally:
            if not call.done():
                helper.kill()
                await asyncio.gather(call, return_exceptions=True)

    async def _call_reader(self, kind: str, *arguments: object) -> None:
        if self._reader.is_dead:
            self._begin_reader_anew()
        try:
            await self._call(self._reader, kind, *arguments)
        except HelperDiedError as error:
            raise OSError(errno.ECHILD, error.strerror) from error

    async def _call(self, helper: HelperProcess, kind: str, *arguments: object) -> None:
        if helper.pid is None:
            self.handles.with_room(helper.start)
        await helper.call(kind, *arguments)

    def _begin_reader_anew(self) -> None:
        """Wait between restarts: the cause of the last end may end this one, too."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._reader_began_s < _READER_PAUSE_S:
            raise OSError(errno.ECHILD, "the read process died, and died again")
        logger.warning("starting the read process anew")
        self._reader.close()
        self._reader = HelperProcess("read")
        self._reader_began_s = now_s

    @property
    def sync_process_id(self) -> int | None:
        """The process id of the helper that syncs what the kernel does not, once it runs."""
        return self._syncer.pid

    @property
    def read_process_id(self) -> int | None:
        """The process id of the helper that reads, once it runs; a new one after it has died."""
        return self._reader.pid

    @property
    def work_process_id(self) -> int | None:
        """The process id of the helper that does long work, once there was some."""
        return None if self._worker is None else self._worker.pid

    def close(self) -> None:
        """End the helper processes, and wait for syncs under way. Idempotent."""
        self.kept.is_on = False
        self.kept.give_all_back()
        if self._kernel is not None:
            self._kernel.close()
        self._syncer.close()
        self._reader.close()
        if self._worker is not None:
            self._worker.kill()
