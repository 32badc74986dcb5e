"""The handles of open files: so many at most, given back and taken again behind the scenes."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

_SHARE: Final = 2
"""Logs may hold one in this many of the process's file handles; connections take the others."""

_LEAST: Final = 16


class Holder(Protocol):
    """A holder of a handle that can be taken away: it opens its file again when it is used."""

    was_used: bool

    def give_back(self) -> None: ...


class FileHandles:
    """Bounds the number of handles: closes the handles that were not used lately.

    This is the clock algorithm: a use costs no more than setting ``was_used``.
    """

    def __init__(self, limit: int | None = None) -> None:
        """``limit``: by default a share of what the process may have open."""
        if limit is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = max(soft // _SHARE, _LEAST) if soft != resource.RLIM_INFINITY else 1 << 30
        self._limit = limit
        self._holders: dict[Holder, None] = {}  # from the hand on

    def __len__(self) -> int:
        return len(self._holders)

    def open(self, path: str, flags: int) -> int:
        """A file descriptor. Raises OSError."""
        return self.with_room(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))

    def hold(self, holder: Holder) -> None:
        """``holder`` has a handle now."""
        self._holders[holder] = None
        while len(self._holders) > self._limit:
            self._give_one_back()

    def forget(self, holder: Holder) -> None:
        """``holder`` has closed its handle."""
        self._holders.pop(holder, None)

    def with_room(self, action: Callable[[], T]) -> T:
        """Do something that needs a handle; if none is left, logs give some back for it."""
        while True:
            try:
                return action()
            except OSError as error:
                if error.errno != errno.EMFILE or not self._give_one_back():
                    raise

    def _give_one_back(self) -> bool:
        while self._holders:
            holder = next(iter(self._holders))
            del self._holders[holder]
            if holder.was_used:
                holder.was_used = False
                self._holders[holder] = None
            else:
                holder.give_back()
                return True
        return False
