"""Files whose handles were closed before a sync covered all of their bytes. ``kept_handles`` makes
them rare.

The kernel may forget such a file's inode under memory pressure, and with it the error of a write in
the background. A handle that is opened later for the sync would not be told of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from runtime.real.held_directories import DirectoryHandle, HeldDirectories
from world.disk import SyncFailedError


class UnsyncedFiles:
    """Sees to it that no error of such a file is lost.

    If the handle of the directory gets all errors, every sync there is by that handle until one has
    succeeded. Otherwise a file is synced before its handle is given back, which waits for the
    device. A file that is closed there is synced only if ``waits``. Such a file of a log is an
    index, a snapshot or a topic id. Recovery rebuilds the first two, and a checkpoint shows that
    the last is missing.
    """

    def __init__(self, held: HeldDirectories[DirectoryHandle], *, waits: bool) -> None:
        self._held = held
        self._waits = waits
        self._failed: dict[str, OSError] = {}
        self.has_debt = False
        """Whether some directory may be owed a sync by its handle."""

    def given_back(self, path: str, handle: int) -> None:
        """The handle of a file in use is about to be closed."""
        if not self._owe(path):
            self._sync(path, handle)

    def closed(self, path: str, handle: int) -> None:
        """The handle of a file that was closed is about to be closed."""
        if not self._owe(path) and self._waits:
            self._sync(path, handle)

    def _owe(self, path: str) -> bool:
        held = self._held.of((path,))
        if held is None or not held.tells:
            return False
        held.owe()
        self.has_debt = True
        return True

    def settle(self, held: DirectoryHandle, debt: int) -> None:
        """As ``DirectoryHandle.settle``."""
        held.settle(debt)
        self.has_debt = any(each.is_owed for each in self._held)

    def _sync(self, path: str, handle: int) -> None:
        try:
            os.fsync(handle)
        except OSError as error:
            self._failed[path] = error
            self._held.failed((path,), error)

    def check(self, paths: Sequence[str]) -> None:
        """Raises SyncFailedError if one of these files failed to sync when it was closed, or if
        their owner had a failed sync."""
        self._held.check(paths)
        if not self._failed:
            return
        for path in paths:
            if (error := self._failed.get(path)) is not None:
                raise SyncFailedError(error.errno, error.strerror, path)
