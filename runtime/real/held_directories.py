"""The directories that have an owner in this process, each with a handle from before all writes.

An owner is a part of the process that stops as a whole when a sync fails: a log directory, or the
metadata log, which may lie within a log directory. Two rules hold here, in the real disk and in the
simulator's.

1. Each owner has a handle of its own, and no other owner's sync uses it. Linux tells a write-back
   error once to each open file description that was there before it (errseq_t; fs/sync.c for
   syncfs). An example: a log directory and the metadata log within it share a handle. A page of a
   partition cannot be written. A checkpoint of the metadata log is told, and the replica of the
   quorum stops. The next sync of the partition succeeds, and acknowledges records that are not on
   disk.
2. After a failed sync every later sync of the same owner fails. The first of them may be of
   somebody who was cancelled meanwhile, or of a checkpoint whose error is only logged. The owner
   must hear of the error whatever became of that one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

from runtime.real.sync_process import tells_write_errors
from world.disk import SyncFailedError

H = TypeVar("H")

_OWNERS_MAX: Final = 4096


class HeldDirectories(Generic[H]):
    """The handle of each owned directory, and the first failed sync there."""

    def __init__(self) -> None:
        self._handles: dict[str, H] = {}
        self._failures: dict[str, OSError] = {}
        # The innermost owned directory of each path that was asked for; "" if there is none. A log
        # asks for the path of its active segment at each sync.
        self._owners: dict[str, str] = {}

    def __iter__(self) -> Iterator[H]:
        return iter(self._handles.values())

    def hold(self, path: str, handle: H) -> None:
        self._handles[path] = handle
        self._owners.clear()

    def release(self, path: str, handle: H) -> bool:
        """Whether it was held by this handle until now."""
        if self._handles.get(path) is not handle:
            return False
        del self._handles[path]
        self._owners.clear()
        self._failures.pop(path, None)
        return True

    def of(self, paths: Sequence[str]) -> H | None:
        """The handle of the innermost owned directory that holds all these paths."""
        return self._handles.get(self._innermost(paths))

    def failed(self, paths: Sequence[str], error: OSError) -> None:
        """A sync of these paths failed."""
        directory = self._innermost(paths)
        if directory:
            self._failures.setdefault(directory, error)

    def check(self, paths: Sequence[str]) -> None:
        """Raises SyncFailedError if a sync of the owner of these paths has failed."""
        if not self._failures:
            return
        error = self._failures.get(self._innermost(paths))
        if error is not None:
            raise SyncFailedError(error.errno, f"an earlier sync failed: {error}", paths[0])

    def _innermost(self, paths: Sequence[str]) -> str:
        if not paths:
            return ""
        first = self._owners.get(paths[0])
        if first is None:
            first = self._owner(paths[0])
        for path in paths[1:]:
            if self._owners.get(path) != first and self._owner(path) != first:
                return self._common_owner(paths)
        return first

    def _owner(self, path: str) -> str:
        if len(self._owners) >= _OWNERS_MAX:
            self._owners.clear()
        owner = self._owners[path] = self._common_owner((path,))
        return owner

    def _common_owner(self, paths: Sequence[str]) -> str:
        found = ""
        for path in self._handles:
            if len(path) > len(found) and all(_is_within(each, path) for each in paths):
                found = path
        return found


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


class DirectoryHandle:
    """Handles by which the whole file system of an owned directory can be synced.

    There are two, and each of them gets every error: one for syncs on the event loop, and one for
    syncs that end later. A sync on the event loop cannot wait for another one that has perhaps got
    an error already.
    """

    __slots__ = ("_owed", "_settled", "number", "number_on_loop", "tells", "turn")

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        flags: Final = os.O_RDONLY | os.O_CLOEXEC
        self.number = os.open(path, flags)
        try:
            self.number_on_loop = os.open(path, flags)
        except BaseException:
            os.close(self.number)
            raise
        self.tells = tells_write_errors(self.number)
        """Whether a sync of the file system reports every error since the handle was opened."""
        self.turn = asyncio.Lock()
        """One sync at a time goes by ``number``. Otherwise one sync gets the error, and another one
        without it is answered first."""
        self._owed = 0
        self._settled = 0

    @property
    def is_owed(self) -> bool:
        """A file in the directory was closed with bytes that no sync had covered. The kernel may
        forget its errors with its inode. A sync of the file system still reports them, so every
        sync of the directory is one until one has succeeded."""
        return self._settled < self._owed

    def owe(self) -> None:
        self._owed += 1

    @property
    def debt(self) -> int:
        """What a sync of the file system settles that begins now: for ``settle``."""
        return self._owed

    def settle(self, debt: int) -> None:
        self._settled = max(self._settled, debt)

    def close(self) -> None:
        os.close(self.number)
        os.close(self.number_on_loop)
