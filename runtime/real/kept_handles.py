"""The handles of files that were closed with unsynced bytes, until their paths are synced.

A log writes an index, a snapshot or a checkpoint, closes it, and has its path synced soon after.
Only the handle that wrote it is sure to get every write-back error (``unsynced_files``). Without it
the next sync would be one of the whole file system. It would wait for what anybody has written
there, and so would the requests of producers: at each checkpoint, and whenever a segment ends.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

from runtime.real.file_handles import FileHandles
from runtime.real.named_files import NamedFiles
from runtime.real.unsynced_files import UnsyncedFiles

KEPT_MAX: Final = 64
"""With more than that nobody seems to sync them. All are given back, and one sync of the file
system settles them."""


class _ClosingFile(Protocol):
    """A file that its holder closes or opens."""

    path: str
    inode: int | None
    handle: int
    confirmed: int
    is_dirty: bool
    was_used: bool

    def give_back(self) -> None: ...

    def sync_began(self) -> None: ...


class _KeptFile:
    """A file that its holder has closed."""

    __slots__ = ("_keeper", "confirmed", "handle", "inode", "path", "was_used")

    def __init__(self, file: _ClosingFile, keeper: KeptHandles) -> None:
        self.path = file.path
        self.inode = file.inode
        self.handle = file.handle
        self.confirmed = file.confirmed
        self.was_used = False
        self._keeper = keeper

    def sync_began(self) -> None:
        """The kernel holds the file until the sync ends."""
        self._keeper.end(self, owes=False)

    def give_back(self) -> None:
        self._keeper.end(self, owes=True)


class KeptHandles:
    """At most one file of each path."""

    def __init__(self, handles: FileHandles, names: NamedFiles, unsynced: UnsyncedFiles) -> None:
        self.is_on = False
        """Whether syncs go by the handles of files. Nothing is kept before."""
        self._handles = handles
        self._names = names
        self._unsynced = unsynced
        self._files: dict[str, _KeptFile] = {}

    def __len__(self) -> int:
        return len(self._files)

    def keep(self, file: _ClosingFile) -> bool:
        """Take the handle of a file that is being closed. False: it cannot be kept."""
        if not self.is_on or not self._names.holds(file):
            return False
        kept = self._files[file.path] = _KeptFile(file, self)
        self._names.replace(file, kept)
        self._handles.forget(file)
        self._handles.hold(kept)
        if len(self._files) > KEPT_MAX:
            self.give_all_back()
        return True

    def opened(self, file: _ClosingFile) -> None:
        """``file`` was opened. If it is one that is kept, it has the unsynced bytes now: its handle
        gets the errors that no other handle has got."""
        kept = self._files.get(file.path)
        if kept is not None:
            file.is_dirty = file.is_dirty or kept.inode == file.inode
            self.end(kept, owes=kept.inode != file.inode)

    def renamed(self, source: str, target: str) -> None:
        """What is at ``source`` now will never be synced by its path."""
        self.removed(target)
        for kept in self._within(source):
            self.end(kept, owes=True)

    def removed(self, path: str) -> None:
        """Nobody wants the bytes of this file or tree any more. Its space becomes free."""
        for kept in self._within(path):
            self.end(kept, owes=False)

    def _within(self, path: str) -> list[_KeptFile]:
        if not self._files:
            return []
        inside = path + "/"
        return [
            kept for name, kept in self._files.items() if name == path or name.startswith(inside)
        ]

    def give_all_back(self) -> None:
        for kept in list(self._files.values()):
            self.end(kept, owes=True)

    def end(self, kept: _KeptFile, *, owes: bool) -> None:
        """Close the handle. ``owes``: no sync has covered the bytes."""
        if self._files.get(kept.path) is not kept:
            return
        del self._files[kept.path]
        self._names.closed(kept)
        self._handles.forget(kept)
        if owes:
            self._unsynced.closed(kept.path, kept.handle)
        os.close(kept.handle)
