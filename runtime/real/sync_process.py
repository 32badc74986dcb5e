"""The helper process that waits for the disk, so that no thread of the node has to.

Run as a script with the number of one end of a socket pair; standard library only. Requests and
replies are length-prefixed marshalled tuples; both ends are the same interpreter. It opens files
itself, except for the handle of a file system, which comes with the request. It outlives signals
meant for its parent, and ends when the socket does: a parent that is killed leaves no orphan.
"""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket
import stat
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

LENGTH = struct.Struct(">I")
PART = -1
"""In the place of the errno: a reply with a part of the result, which others follow."""
WORKERS = 4
SYNCFS_FROM_FILES = 8
"""From so many files on, one syncfs beats syncing one file after the other. Measured on ext4 and
virtio: 4 files 0.62 against 0.38 ms, 8 files 1.5 against 0.5, 50 files 10.4 against 1.8. The margin
is for syncfs also waiting for what others have written to the same file system. Where the kernel
syncs files side by side, ``kernel_sync.GROUP_FILES`` counts."""

SYNCFS_FROM_LINUX = (5, 17)

_TELLING_FILE_SYSTEMS = (0xEF53, 0x58465342)  # ext2, ext3 and ext4; XFS (linux/magic.h)
_STATFS_BYTES = 256  # more than a struct statfs, which begins with the kind of file system
_HANDLES_MAX = 1  # of a request
_READ_BYTES = 256 * 1024
"""The bytes of a read, and so of each worker in the device's queue. A sync waits for what is in
there."""

_FSYNC_FILE = getattr(os, "fdatasync", os.fsync)


class HelperSyncError(OSError):
    """A sync began and failed. One that could not begin for want of a handle raises OSError."""


class HelperReadError(OSError):
    """The device does not give the bytes of a file that is there."""


def _syncfs() -> Any:
    """The C library's function; None where there is none."""
    if sys.platform != "linux":
        return None
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


def tells_write_errors(handle: int, release: str | None = None) -> bool:
    """Whether syncfs by this handle reports all errors of its file system since it was opened.

    Linux does so from 5.8 on for pages, and from 5.17 on for a failed commit of the journal
    (``sync_filesystem`` ignored the result of ``sync_fs`` before). ext2 to ext4 and XFS take part.
    An overlay does not report the errors of the file system below it. ``release``: the kernel's.
    """
    if sys.platform != "linux" or _syncfs() is None:
        return False
    numbers = (release or os.uname().release).split("-")[0].split(".")
    if (int(numbers[0]), int(numbers[1])) < SYNCFS_FROM_LINUX:
        return False
    import ctypes

    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).fstatfs(handle, status) != 0:
        return False
    return ctypes.c_long.from_buffer(status).value in _TELLING_FILE_SYSTEMS


def sync_file_system(handle: int, path: str) -> None:
    """Sync the file system of ``handle``. ``path`` is for the error. Raises HelperSyncError."""
    import ctypes

    if _syncfs()(handle) != 0:
        code = ctypes.get_errno()
        raise HelperSyncError(code, os.strerror(code), path)


class Worker:
    """Carries out requests. It keeps no state, so that it owes nobody an error."""

    def handle(self, kind: str, *arguments: Any, handles: Sequence[int] = ()) -> None:
        """``handles`` came with the request, and are arguments, too."""
        getattr(self, f"do_{kind}")(*arguments, *handles)

    def do_sync(self, paths: Sequence[str]) -> None:
        """Sync files' bytes and directories' entries; paths that are gone are skipped."""
        for path in paths:
            try:
                handle = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                if stat.S_ISDIR(os.fstat(handle).st_mode):
                    os.fsync(handle)
                else:
                    _FSYNC_FILE(handle)
            except OSError as error:
                raise HelperSyncError(error.errno, error.strerror, path) from error
            finally:
                os.close(handle)

    def do_sync_file_system(self, paths: Sequence[str], handle: int) -> None:
        """As ``sync``, by one call for all that is on the handle's file system."""
        device = os.fstat(handle).st_dev
        self.do_sync([path for path in paths if not _is_on(device, path)])
        sync_file_system(handle, paths[0])

    def do_replace(self, path: str, data: bytes) -> None:
        replace_file(path, data, suffix=".tmp-async")

    def do_discard(self, paths: list[str]) -> None:
        """Remove files and trees; paths that are gone are skipped."""
        for path in paths:
            remove(path)

    def do_warm(self, path: str, position: int, size: int) -> None:
        """Read a range, which leaves it in the page cache."""
        handle = os.open(path, os.O_RDONLY)
        try:
            advise_random(handle)
            while size > 0:
                try:
                    count = len(os.pread(handle, min(size, _READ_BYTES), position))
                except OSError as error:
                    raise HelperReadError(error.errno, error.strerror, path) from error
                if count == 0:
                    return
                position += count
                size -= count
        finally:
            os.close(handle)


def advise_random(handle: int) -> None:
    """Have the kernel read nothing beyond what is asked for: a sync that comes next would wait for
    all of it. Linux reads up to ``read_ahead_kb`` of the device ahead, which may be many MiB. It
    must be said before the first read: once some bytes were read ahead, they bring the next ones
    with them (page_cache_async_ra)."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # a file system need not take advice
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)


def _is_on(device: int, path: str) -> bool:
    try:
        return os.stat(path).st_dev == device
    except FileNotFoundError:
        return True  # nobody wants its bytes any more


def remove(path: str) -> None:
    """Remove a file or a tree, or what is left of it."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.remove(path)
            return
        for name in os.listdir(path):
            remove(os.path.join(path, name))
        os.rmdir(path)
    except FileNotFoundError:
        pass


def replace_file(path: str, data: bytes, *, suffix: str) -> None:
    """Put ``data`` in the place of a file, atomically and durably.

    A temporary file that could not be written or synced is removed: a full disk needs the room, and
    the next attempt begins anew. From the rename on only the directory's sync can fail: the handle
    for it is opened before. Otherwise a process without a free handle would have the new file, and
    its caller would believe that nothing was changed. Raises HelperSyncError, OSError.
    """
    temporary = path + suffix
    parent = os.path.dirname(path)
    directory = os.open(parent, os.O_RDONLY)
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_handle(directory, parent)
    finally:
        os.close(directory)


def sync_path(path: str) -> None:
    """Sync one file or directory. Raises HelperSyncError, OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        _sync_handle(handle, path)
    finally:
        os.close(handle)


def _sync_handle(handle: int, path: str) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        raise HelperSyncError(error.errno, error.strerror, path) from error


def _receive(connection: socket.socket, size: int, handles: list[int]) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            piece, received, _, _ = socket.recv_fds(connection, size - len(data), _HANDLES_MAX)
        except ConnectionError:
            return None
        handles += received
        if not piece:
            return None
        data += piece
    return bytes(data)


def receive_request(
    connection: socket.socket, handles: list[int] | None = None
) -> tuple[Any, ...] | None:
    """The next request; None at the end. The handles that came with it are added to ``handles``,
    and the caller closes them."""
    handles = [] if handles is None else handles
    head = _receive(connection, LENGTH.size, handles)
    if head is None:
        return None
    body = _receive(connection, LENGTH.unpack(head)[0], handles)
    return None if body is None else marshal.loads(body)


def _serve(connection: socket.socket) -> None:
    """Serve until the parent's end is closed. The threads take turns to receive, and each carries
    out the request it received, so that none is handed over on the way to the disk."""
    receiving = threading.Lock()
    sending = threading.Lock()
    worker = Worker()

    def work() -> None:
        while True:
            handles: list[int] = []
            with receiving:
                request = receive_request(connection, handles)
            if request is None:
                return
            data = marshal.dumps(_carry_out(worker, handles, *request))
            for handle in handles:
                os.close(handle)
            try:
                with sending:
                    connection.sendall(LENGTH.pack(len(data)) + data)
            except ConnectionError:
                return  # the parent is gone; so will be this process

    others = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS - 1)]
    for thread in others:
        thread.start()
    work()


def _carry_out(
    worker: Worker, handles: Sequence[int], number: int, kind: str, *arguments: Any
) -> tuple[Any, ...]:
    """A request's reply: its number, an errno or 0, words, a path, and what failed."""
    try:
        worker.handle(kind, *arguments, handles=handles)
    except OSError as error:
        code = error.errno or errno.EIO
        what = type(error).__name__
        return number, code, error.strerror or str(error), str(error.filename or ""), what
    except Exception as error:
        # A request must be answered, or its log would wait for ever.
        return number, errno.EIO, f"{type(error).__name__}: {error}", "", ""
    return number, 0, "", "", ""


def main() -> None:
    # A signal to the whole group is the parent's business: it still needs syncs to end cleanly.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)


if __name__ == "__main__":
    main()
