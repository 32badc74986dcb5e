"""The open file of a path, so that its sync needs no handle of its own.

To open, examine and close a file for each sync costs half as much as the whole rest of beginning
it. And the handle that wrote the file is the better one: it gets every write-back error since it
was opened. A new handle gets only errors that no handle has got (Linux's errseq_t).
"""

from __future__ import annotations

import os
from typing import Protocol


class NamedFile(Protocol):
    """An open file, as its holder sees it."""

    path: str
    inode: int | None
    """None: it is closed."""
    handle: int
    """Negative: it was given back."""
    confirmed: int
    """The count of ``NamedFiles.changed`` at which ``path`` last named it."""

    def sync_began(self) -> None:
        """A sync by the handle has begun. The kernel holds the open file until it ends, and tells
        it every error so far."""
        ...


class NamedFiles:
    """The newest open file of each path.

    After a change of names, a file counts only when its inode was seen under its path again.
    For example: a segment is open, its directory is renamed, and another takes that name. The path
    now names another segment. Changes are rare, so it is enough to count them.
    """

    def __init__(self) -> None:
        self._files: dict[str, NamedFile] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, file: NamedFile) -> None:
        """``file`` was opened by its path just now."""
        file.confirmed = self._changes
        self._files[file.path] = file

    def closed(self, file: NamedFile) -> None:
        if self._files.get(file.path) is file:
            del self._files[file.path]

    def holds(self, file: NamedFile) -> bool:
        """Whether no newer file was opened by its path."""
        return self._files.get(file.path) is file

    def replace(self, file: NamedFile, other: NamedFile) -> None:
        """``other`` has taken over the handle of ``file``, which this object holds."""
        self._files[file.path] = other

    def changed(self) -> None:
        """Some path may name another file than before."""
        self._changes += 1

    def file(self, path: str) -> NamedFile | None:
        """The open file that ``path`` names, with its handle; None if none is known."""
        file = self._files.get(path)
        if file is None or file.confirmed != self._changes or file.handle < 0:
            return None
        return file

    def seen(self, path: str, status: os.stat_result) -> None:
        """``path`` names the file with this status."""
        file = self._files.get(path)
        if file is not None and file.inode == status.st_ino:
            file.confirmed = self._changes
