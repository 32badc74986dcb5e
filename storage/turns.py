"""Long work in slices, so that no turn of the event loop is long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

SLICE_STEPS: Final = 256
"""Steps of some microseconds each for one turn."""


async def in_slices(
    work: Callable[[T], R], items: Iterable[T], steps: int = SLICE_STEPS
) -> list[R]:
    """``work``'s result for each item. Other tasks run after every so many of them."""
    done = []
    for count, item in enumerate(items, 1):
        done.append(work(item))
        if not count % steps:
            await asyncio.sleep(0)
    return done


class Slices:
    """Gives the event loop to others after every so many steps of a long work.

    Steps are counted, not timed: a turn of the simulator does the same as a turn of a node. After
    an ``await`` the caller checks its assumptions again.
    """

    __slots__ = ("_left", "_steps")

    def __init__(self, steps: int) -> None:
        """``steps``: what one turn may do, a millisecond or so."""
        self._steps = steps
        self._left = steps

    async def step(self, count: int = 1) -> bool:
        """``count`` steps were done, or are next. Returns whether other tasks have run."""
        self._left -= count
        if self._left > 0:
            return False
        self._left = self._steps
        await asyncio.sleep(0)
        return True
