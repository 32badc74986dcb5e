"""The helper process that waits for the disk, so that no thread of the node has to.

Run as a script with the number of one end of a socket pair; standard library only. Requests and
replies are length-prefixed marshalled tuples; both ends are the same interpreter. It opens the
files itself, outlives signals meant for its parent, and ends when the socket does: a parent that
is killed leaves no orphan.
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
from contextlib import suppress
from typing import Any

LENGTH = struct.Struct(">I")
PART = -1
"""In the place of the errno: a reply with a part of the result, which others follow."""
WORKERS = 4
SYNCFS_FROM_FILES = 8
"""From so many files on, one syncfs beats syncing each. Measured on ext4 and virtio: 4 files 0.62
against 0.38 ms, 8 files 1.5 against 0.5, 50 files 10.4 against 1.8. The margin is for syncfs also
waiting for what others have written to the same file system."""

_READ_BYTES = 1 << 20
_FSYNC_FILE = getattr(os, "fdatasync", os.fsync)


class HelperSyncError(OSError):
    """A sync began and failed. One that could not begin for want of a handle raises OSError."""


class HelperReadError(OSError):
    """The device does not give the bytes of a file that is there."""


class FileSystems:
    """syncfs, one handle kept for each file system: an error since is reported to it once."""

    def __init__(self) -> None:
        self._handles: dict[int, int] = {}
        self._lock = threading.Lock()
        self._syncfs = self._load()

    @staticmethod
    def _load() -> Any:
        """The C library's function; None where it does not report errors (before Linux 5.8)."""
        if sys.platform != "linux":
            return None
        release = os.uname().release.split(".")
        if (int(release[0]), int(release[1].split("-")[0])) < (5, 8):
            return None
        import ctypes

        return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)

    @property
    def usable(self) -> bool:
        return self._syncfs is not None

    def sync(self, device: int, path: str) -> None:
        import ctypes

        with self._lock:
            if device not in self._handles:
                self._handles[device] = os.open(os.path.dirname(path), os.O_RDONLY)
            handle = self._handles[device]
        if self._syncfs(handle) != 0:
            code = ctypes.get_errno()
            raise HelperSyncError(code, os.strerror(code), path)


class Worker:
    """Carries out requests."""

    def __init__(self) -> None:
        self._file_systems: FileSystems | None = None
        self._lock = threading.Lock()

    def handle(self, kind: str, *arguments: Any) -> None:
        getattr(self, f"do_{kind}")(*arguments)

    def do_sync(self, paths: list[str]) -> None:
        """Sync files' bytes and directories' entries; paths that are gone are skipped."""
        if len(paths) >= SYNCFS_FROM_FILES and self._sync_file_systems(paths):
            return
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

    def _sync_file_systems(self, paths: list[str]) -> bool:
        with self._lock:
            if self._file_systems is None:
                self._file_systems = FileSystems()
        if not self._file_systems.usable:
            return False
        devices: dict[int, str] = {}
        for path in paths:
            try:
                devices.setdefault(os.stat(path).st_dev, path)
            except FileNotFoundError:
                continue
        for device, path in devices.items():
            self._file_systems.sync(device, path)
        return True

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
    whoever tries again begins anew. Only the directory's sync is one that must not fail.
    """
    temporary = path + suffix
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
    sync_path(os.path.dirname(path))


def sync_path(path: str) -> None:
    """Sync one file or directory. Raises HelperSyncError, OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        raise HelperSyncError(error.errno, error.strerror, path) from error
    finally:
        os.close(handle)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            piece = connection.recv(size - len(data))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return bytes(data)


def receive_request(connection: socket.socket) -> tuple[Any, ...] | None:
    head = _receive(connection, LENGTH.size)
    if head is None:
        return None
    body = _receive(connection, LENGTH.unpack(head)[0])
    return None if body is None else marshal.loads(body)


def _serve(connection: socket.socket) -> None:
    """Serve until the parent's end is closed. The threads take turns to receive, and each carries
    out the request it received, so that none is handed over on the way to the disk."""
    receiving = threading.Lock()
    sending = threading.Lock()
    worker = Worker()

    def work() -> None:
        while True:
            with receiving:
                request = receive_request(connection)
            if request is None:
                return
            data = marshal.dumps(_carry_out(worker, *request))
            try:
                with sending:
                    connection.sendall(LENGTH.pack(len(data)) + data)
            except ConnectionError:
                return  # the parent is gone; so will be this process

    others = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS - 1)]
    for thread in others:
        thread.start()
    work()


def _carry_out(worker: Worker, number: int, kind: str, *arguments: Any) -> tuple[Any, ...]:
    """A request's reply: its number, an errno or 0, words, a path, and what failed."""
    try:
        worker.handle(kind, *arguments)
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
