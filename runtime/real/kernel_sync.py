"""Syncs that the kernel carries out in the background: Linux's native asynchronous I/O
(io_submit(2), ``IOCB_CMD_FSYNC`` and ``IOCB_CMD_FDSYNC``, since Linux 4.18).

No thread and no other process waits for the device: the kernel's own workers do, those of a group
side by side, and an eventfd wakes the event loop. It is called through the C library's ``syscall``,
because the C library has no functions for it.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import platform
import stat
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from runtime.real.named_files import NamedFile, NamedFiles
from world.disk import SyncFailedError

CAPACITY: Final = 128
"""Syncs under way at once, of all groups."""

GROUP_FILES: Final = 48
"""A group of more files is better synced with its whole file system, in one call. Medians on ext4
and virtio in ms, side by side and as a whole: 8 files 0.5 and 0.6, 18 files 0.9 and 0.7, 50 files
1.8 and 1.8. Beside a process that writes 150 MiB/s to the same file system: 0.9 and 4.0, 0.7 and
5.7, 3.0 and 7.9, because a sync of the whole waits for what others have written."""

# io_setup, io_destroy, io_getevents, io_submit
_NUMBERS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
# struct iocb of linux/aio_abi.h: data, key and rw_flags, opcode, reqprio, fildes, buf, nbytes,
# offset, reserved2, flags, resfd.
_IOCB: Final = struct.Struct("<QQHhIQQqQII")
# struct io_event: data, obj, res, res2.
_EVENT: Final = struct.Struct("<QQqq")
_FSYNC: Final = 2
_FDSYNC: Final = 3
_FLAG_RESFD: Final = 1
_NONE: Final = ctypes.c_long(0)
_ALL: Final = ctypes.c_long(CAPACITY)
_REFUSALS: Final = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)


class UnsupportedError(Exception):
    """The kernel, or what confines this process, does not give this."""


@dataclass(slots=True, eq=False)
class _Group:
    """The syncs of one call that are under way."""

    done: asyncio.Future[None]
    open: int
    failure: OSError | None = None


class KernelSync:
    """One context of the kernel's, and the groups that are under way in it.

    The first call binds it to the running event loop.
    """

    def __init__(self, names: NamedFiles, syscall: Callable[..., int] | None = None) -> None:
        """``names``: the open files, whose handles serve their syncs. ``syscall``: the C library's,
        or a test's. Raises UnsupportedError, and an OSError where no handle can be had."""
        self._names = names
        self.on_failed: Callable[[str, OSError], None] = _ignore
        """Called with the path of each sync that fails, also when nobody waits for its group."""
        self._syscall = syscall or ctypes.CDLL(None, use_errno=True).syscall
        if platform.system() != "Linux" or platform.machine() not in _NUMBERS:
            raise UnsupportedError(f"{platform.system()} {platform.machine()}")
        numbers = _NUMBERS[platform.machine()]
        self._setup, self._destroy, self._get_events, self._submit = numbers
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context = ctypes.c_ulong(0)
        if self._syscall(self._setup, CAPACITY, ctypes.byref(self._context)) != 0:
            os.close(self._event_fd)
            raise UnsupportedError(f"io_setup: {os.strerror(ctypes.get_errno())}")
        self._blocks = ctypes.create_string_buffer(_IOCB.size * CAPACITY)
        first = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_void_p * CAPACITY)(
            *(first + number * _IOCB.size for number in range(CAPACITY))
        )
        self._events = ctypes.create_string_buffer(_EVENT.size * CAPACITY)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: dict[int, tuple[_Group, str]] = {}  # by the iocb's data
        self._next_number = 0
        self.has_begun_whole = True
        """Whether all syncs of the last group have begun. Otherwise its future gets an OSError that
        is no SyncFailedError, unless a begun sync fails."""
        self._is_closed = False

    @property
    def room(self) -> int:
        """The syncs that may begin now."""
        return CAPACITY - len(self._under_way)

    def sync(self, paths: Sequence[str]) -> asyncio.Future[None]:
        """Begin a group of at most ``room`` syncs; paths that are gone are skipped.

        The future has a SyncFailedError, after all have ended, if one of them fails. Raises
        UnsupportedError, and an OSError where no handle can be had: nothing has begun then.
        """
        if self._is_closed:
            raise OSError(errno.EBADF, "the disk was closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._event_fd, self._on_events)
        elif loop is not self._loop:
            raise RuntimeError("syncs under way belong to another event loop")
        syncs: list[tuple[str, NamedFile | None]] = []
        opened: list[int] = []
        try:
            for path in paths:
                file, kind = self._names.file(path), _FDSYNC
                if file is None:
                    try:
                        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    except FileNotFoundError:
                        continue
                    opened.append(handle)
                    status = os.fstat(handle)
                    self._names.seen(path, status)
                    file = self._names.file(path)
                    if stat.S_ISDIR(status.st_mode):
                        kind = _FSYNC
                if file is not None:
                    handle = file.handle
                place = len(syncs)
                number = self._next_number + place
                request = (number, 0, kind, 0, handle, 0, 0, 0, 0, _FLAG_RESFD, self._event_fd)
                _IOCB.pack_into(self._blocks, place * _IOCB.size, *request)
                syncs.append((path, file))
            group = _Group(loop.create_future(), 0)
            if syncs:
                self._begin(group, syncs)
            else:
                group.done.set_result(None)
            return group.done
        finally:
            for handle in opened:  # the kernel has a reference of its own
                os.close(handle)

    def _begin(self, group: _Group, syncs: Sequence[tuple[str, NamedFile | None]]) -> None:
        """Begin the syncs of these paths, each with the open file that has its handle."""
        first, count = self._next_number, len(syncs)
        self._next_number += count
        begun = self._syscall(self._submit, self._context, ctypes.c_long(count), self._pointers)
        if begun <= 0:
            code = ctypes.get_errno() if begun < 0 else errno.EAGAIN
            if code in _REFUSALS:
                raise UnsupportedError(f"io_submit: {os.strerror(code)}")
            raise OSError(code, f"io_submit: {os.strerror(code)}")
        self.has_begun_whole = begun == count
        if begun < count:  # set when the begun syncs have ended
            group.failure = OSError(errno.EAGAIN, f"io_submit took {begun} of {count}")
        group.open = begun
        for number, (path, file) in enumerate(syncs[:begun], first):
            self._under_way[number] = group, path
            if file is not None:
                file.sync_began()

    def _on_events(self) -> None:
        try:
            os.eventfd_read(self._event_fd)
        except BlockingIOError:
            return
        count = self._syscall(self._get_events, self._context, _NONE, _ALL, self._events, None)
        if count < 0:  # the signal is used up, so nobody would hear of these syncs any more
            self._give_up(ctypes.get_errno())
        for number in range(count):
            data, _, result, _ = _EVENT.unpack_from(self._events, number * _EVENT.size)
            self._ended(*self._under_way.pop(data), result)

    def _give_up(self, code: int) -> None:
        """Nobody knows which of the syncs under way were done: all count as failed."""
        for group, path in self._under_way.values():
            error = SyncFailedError(code, f"io_getevents: {os.strerror(code)}", path)
            self.on_failed(path, error)
            if not group.done.done():
                group.done.set_exception(error)

    def _ended(self, group: _Group, path: str, result: int) -> None:
        group.open -= 1
        if result < 0:
            error = SyncFailedError(-result, os.strerror(-result), path)
            self.on_failed(path, error)
            if not isinstance(group.failure, SyncFailedError):
                group.failure = error
        if group.open or group.done.done():
            return
        if group.failure is None:
            group.done.set_result(None)
        else:
            group.done.set_exception(group.failure)

    def close(self) -> None:
        """Wait for the syncs under way. Their waiters get an OSError. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._event_fd)
        self._syscall(self._destroy, self._context)
        os.close(self._event_fd)
        for group, _ in self._under_way.values():
            if not group.done.done() and not group.done.get_loop().is_closed():
                group.done.set_exception(OSError(errno.EBADF, "the disk was closed"))
        self._under_way.clear()


def _ignore(path: str, error: OSError) -> None:
    """Nobody asks which sync failed."""
