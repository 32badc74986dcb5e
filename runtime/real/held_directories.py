"""The directories that this process has locked, each with a handle from before its first write.

Linux tells a write-back error once to each open file description that was there before it
(errseq_t; fs/sync.c for syncfs). An example: log directories a and b are on one file system, and
share a handle. A page of a cannot be written. The sync of b is told, and goes offline. The next
sync of a succeeds, and acknowledges records that are not on disk. So each directory has a handle of
its own, and no other sync uses it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Generic, TypeVar

from runtime.real.sync_process import tells_write_errors

H = TypeVar("H")


class HeldDirectories(Generic[H]):
    """The handle of each locked directory."""

    def __init__(self) -> None:
        self._handles: dict[str, H] = {}

    def hold(self, path: str, handle: H) -> None:
        self._handles[path] = handle

    def release(self, path: str) -> H | None:
        return self._handles.pop(path, None)

    def of(self, paths: Sequence[str]) -> H | None:
        """The handle of the innermost directory that holds all these paths."""
        found = ""
        for path in self._handles:
            if len(path) > len(found) and all(_is_within(each, path) for each in paths):
                found = path
        return self._handles.get(found)


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


class DirectoryHandle:
    """A handle of a directory, by which its whole file system can be synced."""

    __slots__ = ("is_owed", "number", "tells")

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.tells = tells_write_errors(self.number)
        """Whether a sync of the file system reports every error since the handle was opened."""
        self.is_owed = False
        """A file in the directory was closed with bytes that no sync had covered. The kernel may
        forget its errors with its inode. A sync of the file system still reports them, so the next
        sync of the directory is one."""

    def close(self) -> None:
        os.close(self.number)
