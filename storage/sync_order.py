"""Which logs the next group of syncs covers, and when the writes to some logs are on disk: pure.

A log is in one group at a time, because its sync says how far it is on disk. If the log is written
meanwhile, it waits until its group has ended. Every other log may be in a group beside that one.

A caller waits for the groups that cover what was written to its logs before its call, and for
nothing else. An example: log A is in a group and was written again, and log B waits for a group. A
caller that names both waits for the next group of A and for that of B. A write to A or B after the
call does not prolong its wait, and neither does a slow group of other logs.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

M = TypeVar("M")
W = TypeVar("W")


class _Wait(Generic[W]):
    """A caller, and how many groups of its logs are left."""

    __slots__ = ("caller", "left")

    def __init__(self, caller: W) -> None:
        self.caller = caller
        self.left = 0


_Waits = list[_Wait[W]] | None
"""The callers that wait for the group that covers a write. There are rarely any."""


class SyncOrder(Generic[M, W]):
    """The logs that need a sync, each with the callers that wait for it."""

    __slots__ = ("_again", "_busy", "over", "ready")

    def __init__(self) -> None:
        self.ready: dict[M, _Waits[W]] = {}
        """May be in the next group, in the order of their coming. Only this class changes it."""
        self._busy: dict[M, _Waits[W]] = {}  # in a group
        self._again: dict[M, _Waits[W]] = {}  # in a group, and written since it began
        self.over: list[W] = []
        """The callers whose wait is over. Whoever calls them takes them out."""

    def add(self, member: M) -> None:
        """``member`` was written."""
        waiting = self._again if member in self._busy else self.ready
        if member not in waiting:
            waiting[member] = None

    def remove(self, member: M) -> None:
        """``member`` needs no further sync. A group that it is in goes on."""
        for waiting in (self.ready, self._again):
            waits = waiting.pop(member, None)
            if waits is not None:
                self._settle(waits)

    def take(self) -> list[M]:
        """A group begins, of all that are ready."""
        members = list(self.ready)
        if self._busy:
            self._busy.update(self.ready)
            self.ready = {}
        else:
            self._busy, self.ready = self.ready, self._busy
        return members

    def take_least(self, most: int, budget: int, size: Callable[[M], int]) -> list[M]:
        """A group begins that is to be quick: of those that have the least to sync, so many at
        most. All but the first are within the budget of their sizes."""
        sizes = ((size(member), place, member) for place, member in enumerate(self.ready))
        least = heapq.nsmallest(most, sizes)
        return self._take([member for *_, member in least[:1]], budget, least[1:])

    def take_within(self, budget: int, size: Callable[[M], int]) -> list[M]:
        """A group of bounded size begins: of the one that has waited longest, whatever its size,
        and of those that have the least to sync, within the budget.

        So none waits for ever, and one with little to sync is in the next group, unless those with
        even less fill it. An example: a client has written 60 MB to each of eight logs, and other
        clients 1 kB to each of ten. A group has one of the eight and all of the ten.
        """
        oldest = list(itertools.islice(self.ready, 1))
        others = itertools.islice(enumerate(self.ready), 1, None)
        sizes = sorted((size(member), place, member) for place, member in others)
        return self._take(oldest, budget, sizes)

    def _take(self, members: list[M], budget: int, others: Iterable[tuple[int, int, M]]) -> list[M]:
        """The group of these members and of the first others, each with its size, that fit."""
        for size, _, member in others:
            budget -= size
            if budget < 0:
                break
            members.append(member)
        for member in members:
            self._busy[member] = self.ready.pop(member)
        return members

    def release(self, member: M) -> None:
        """The group of ``member`` has ended, and it may be in another one."""
        waits = self._busy.pop(member)
        if waits is not None:
            self._settle(waits)
        if member in self._again:
            self.ready[member] = self._again.pop(member)

    def wait(self, caller: W, members: Iterable[M] | None = None) -> bool:
        """``caller`` is in ``over`` once everything is on disk that was written to the members so
        far. None: to all of them. Returns False if it is on disk already."""
        wait = _Wait(caller)
        if members is None:
            members = dict.fromkeys((*self._busy, *self.ready))
        for member in members:
            for covered in (self._again, self.ready, self._busy):
                if member in covered:
                    waits = covered[member]
                    if waits is None:
                        covered[member] = [wait]
                    else:
                        waits.append(wait)
                    wait.left += 1
        return wait.left > 0

    def clear(self) -> None:
        """No further group begins. Those that have begun go on."""
        for waiting in (self.ready, self._again):
            for waits in waiting.values():
                if waits is not None:
                    self._settle(waits)
            waiting.clear()

    def _settle(self, waits: list[_Wait[W]]) -> None:
        for wait in waits:
            wait.left -= 1
            if not wait.left:
                self.over.append(wait.caller)
