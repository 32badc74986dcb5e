"""The disk as Stele sees it: protocol types and their errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol

from stele.world import Buffer


class SyncFailedError(OSError):
    """A sync began and failed. What it covered may never be on disk, whatever the error says."""


class ReadFailedError(OSError):
    """Bytes of a file that is there could not be read."""


class File(Protocol):
    """An open append-mostly file. Methods raise ``OSError`` with its errno (ENOSPC, EIO…); those
    that read a ``ReadFailedError`` where the device does not give the bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes in the file, those not yet synced included. Costs no system call."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end, gathered; return the position of the first byte.

        On failure the file may have grown by a part of the data: the caller truncates.
        """
        ...

    def read(self, position: int, size: int) -> bytes | bytearray | None:
        """Up to ``size`` bytes if they are in memory, else None: then await ``Disk.warm``.

        Fewer bytes, at least one, where only the first ones are in memory or the file ends.
        The caller owns the result. At the end of the file it is empty.
        """
        ...

    def read_now(self, position: int, size: int) -> bytes | bytearray:
        """Up to ``size`` bytes, waiting for the device if need be. For start-up and indexes."""
        ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings.

    Nothing is durable, neither bytes nor directory entries nor renames, before it was synced.
    A failed sync (SyncFailedError) is never tried again: the caller takes the directory offline.
    Every later sync of the same owner (``own``) fails, too. A sync that could not begin for want of
    a handle raises another OSError and may be tried again.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for appending and reading; ``create`` makes it if absent, else FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted. Raises FileNotFoundError if the directory does not
        exist."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents; no error if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically replacing a target file. Durable once the parent is synced."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def read_file(self, path: str) -> bytes:
        """The whole content of a file. Raises FileNotFoundError, ReadFailedError, OSError."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was last written or truncated, in milliseconds since the epoch. It survives a
        restart. Raises OSError."""
        ...

    def free_bytes(self, path: str) -> int:
        """The bytes that may still be written to the file system that holds a path."""
        ...

    def total_bytes(self, path: str) -> int: ...

    def lock(self, path: str) -> Callable[[], None]:
        """Hold a lock file, made if absent, against other processes; returns the release.

        BlockingIOError when another process has it. Ends with the process, however that ends.
        The directory of the file has an owner from now on, as by ``own``.
        """
        ...

    def own(self, path: str) -> Callable[[], None]:
        """Syncs in this directory are of an owner of their own; returns the release.

        Before the first write there. The device's errors are told to the owners of this directory
        and of those around it, to each apart. The directory need not be there yet, but its parent
        must. Raises OSError.
        """
        ...

    def replace_file_now(self, path: str, data: bytes) -> None:
        """Atomic and durable, waiting for the device: temporary file, sync, rename, sync.

        Raises OSError: the file is the old one. Only after a SyncFailedError it may be the new one,
        which is perhaps not durable, and must not be replaced again.
        """
        ...

    def sync_now(self, path: str) -> None:
        """Make a file's bytes or a directory's entries durable, waiting for the device."""
        ...

    async def replace_file(self, path: str, data: bytes) -> None:
        """As ``replace_file_now``, off the event loop."""
        ...

    def sync(self, paths: Sequence[str]) -> Awaitable[None]:
        """Make files' bytes and directories' entries durable, off the event loop.

        Covers everything written before the call. One call is one group. A path that was removed
        meanwhile is skipped: its bytes are not wanted any more. Waits while it cannot begin for
        want of handles, so every error is a SyncFailedError.
        """
        ...

    async def discard(self, paths: Sequence[str]) -> None:
        """Remove files and trees, off the event loop; paths that are gone are skipped.

        The removal is not durable. No other call may be made for these paths. Raises OSError.
        """
        ...

    async def warm(self, path: str, position: int, size: int) -> None:
        """Bring a range into memory, off the event loop, so that ``File.read`` answers.

        Raises ReadFailedError as the device meets it, FileNotFoundError, any other OSError when
        nobody can read for now.
        """
        ...

    def carry_out(
        self, work: Callable[..., Generator[Any, None, None]], *arguments: Any
    ) -> AsyncGenerator[Any, None]:
        """Do long work on files off the event loop; yields the parts of its result.

        ``work`` is a function of a module, called with a Disk and the arguments
        (``storage.long_work``). It is over when the result is, or soon after the result is closed
        early. One work at a time. Raises OSError as the work meets it, any other OSError when
        nobody can do it for now.
        """
        ...
