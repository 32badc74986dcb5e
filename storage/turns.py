"""Long work in slices, so that no turn of the event loop is long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence, Sized
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

SLICE_STEPS: Final = 256
"""The number of steps of a few microseconds each in one turn of the event loop."""


async def in_slices(
    work: Callable[[T], R], items: Iterable[T], steps: int = SLICE_STEPS
) -> list[R]:
    """The result of ``work`` for each item. After every ``steps`` items other tasks run."""
    done = []
    for count, item in enumerate(items, 1):
        done.append(work(item))
        if not count % steps:
            await asyncio.sleep(0)
    return done


async def gather_in_slices(
    work: Callable[[T], Awaitable[R]], items: Sequence[T], at_once: int = SLICE_STEPS
) -> list[R]:
    """The result of ``work`` for each item. It is done for ``at_once`` items at the same time, and
    for the next ones after all of these."""
    done: list[R] = []
    for start in range(0, len(items), at_once):
        done += await asyncio.gather(*map(work, items[start : start + at_once]))
    return done


async def finished(work: Generator[None, None, R]) -> R:
    """The result of work that yields after each slice. Other tasks run then."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result
        await asyncio.sleep(0)


class Slices:
    """Lets other tasks run after every ``steps`` steps of a long work.

    Steps are counted, not timed, so that a turn in the simulator does the same work as a turn in a
    node. After an ``await`` the caller must check its assumptions again.
    """

    __slots__ = ("_left", "_steps")

    def __init__(self, steps: int) -> None:
        """``steps``: the steps of one turn, which should take about a millisecond."""
        self._steps = steps
        self._left = steps

    async def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The result of ``work`` for each item. Each is a step, and so is the list itself."""
        if isinstance(items, Sized) and len(items) + 1 < self._left:  # no turn ends here
            self._left -= len(items) + 1
            return list(map(work, items))
        done = []
        await self.step()
        for item in items:
            done.append(work(item))
            self._left -= 1
            if self._left <= 0:
                self._left = self._steps
                await asyncio.sleep(0)
        return done

    async def step(self, count: int = 1) -> bool:
        """``count`` steps were done, or come next. Returns whether other tasks have run."""
        self._left -= count
        if self._left > 0:
            return False
        self._left = self._steps
        await asyncio.sleep(0)
        return True
