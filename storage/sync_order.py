"""Which logs the next group of syncs covers, and when everything before a moment is on disk: pure.

A log is in one group at a time, because its sync says how far it is on disk. If the log is written
meanwhile, it waits until its group has ended. Every other log may be in a group beside that one.

For callers that wait, time is divided into periods. A caller ends the period and waits until no log
is left that was added in this period or an earlier one. So it waits for nothing that is added after
its call. An example: a log that is written without a pause is in a group of period 3 and waits for
another one in period 4. A caller that came at the end of period 3 waits for the first group only.
"""

from __future__ import annotations

import itertools
from typing import Generic, TypeVar

M = TypeVar("M")


class SyncOrder(Generic[M]):
    """The logs that need a sync, each with the period in which it was added."""

    __slots__ = ("_again", "_busy", "_left", "_period", "ready", "settled")

    def __init__(self) -> None:
        self.ready: dict[M, int] = {}
        """May be in the next group, in the order of their coming. Only this class changes it."""
        self._busy: dict[M, int] = {}  # in a group
        self._again: dict[M, int] = {}  # in a group, and written since it began
        self._left: dict[int, int] = {}  # how many of a period are in one of the three, by period
        self._period = 0
        self.settled = 0
        """All logs that were added in earlier periods have been synced."""

    def add(self, member: M) -> None:
        """``member`` was written."""
        waiting = self._again if member in self._busy else self.ready
        if member not in waiting:
            waiting[member] = self._period
            self._left[self._period] = self._left.get(self._period, 0) + 1

    def remove(self, member: M) -> None:
        """``member`` needs no further sync. A group that it is in goes on."""
        for waiting in (self.ready, self._again):
            if member in waiting:
                self._settle(waiting.pop(member))

    def take(self, most: int | None) -> list[M]:
        """A group begins: the members in it, at most so many."""
        if most is None:
            members = list(self.ready)
            if self._busy:
                self._busy.update(self.ready)
                self.ready = {}
            else:
                self._busy, self.ready = self.ready, self._busy
            return members
        members = list(itertools.islice(self.ready, most))
        for member in members:
            self._busy[member] = self.ready.pop(member)
        return members

    def release(self, member: M) -> None:
        """The group of ``member`` has ended, and it may be in another one."""
        self._settle(self._busy.pop(member))
        if member in self._again:
            self.ready[member] = self._again.pop(member)

    def barrier(self) -> int | None:
        """The period of everything added so far, which is over when ``settled`` is greater. None:
        all of it has been synced."""
        if not self._left:
            return None
        self._period += 1
        return self._period - 1

    def clear(self) -> None:
        """No further group begins. Those that have begun go on."""
        for waiting in (self.ready, self._again):
            for period in waiting.values():
                self._settle(period)
            waiting.clear()

    def _settle(self, period: int) -> None:
        left = self._left[period] - 1
        if left:
            self._left[period] = left
            return
        del self._left[period]
        self.settled = next(iter(self._left), self._period)
