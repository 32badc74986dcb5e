"""Virtual time, clocks that follow it or are set by hand, and waiting on virtual or real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chaos.sim.world.loop import Scheduler

T = TypeVar("T")

_POLL_S = 0.005


def run_virtual(main: Coroutine[Any, Any, T], scheduler: Scheduler | None = None) -> T:
    """Run to the end on a loop on which waiting takes no time, and drop what is left.

    Fails if an error was not handled, or if nothing can happen any more.
    """
    scheduler = scheduler or Scheduler()
    try:
        result = scheduler.run(main)
        assert not scheduler.errors, scheduler.errors
        return result
    finally:
        scheduler.close()


class LoopClock:
    """Follows the loop's time plus what a test adds: a pause that the loop did not see."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.skipped_s

    def time_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)


class HandClock:
    """A clock that moves only when the test moves it."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def time_ms(self) -> int:
        return self.now_ms


async def until(
    condition: Callable[[], bool], what: str = "it does not come to hold", *, within_s: float = 30.0
) -> None:
    """Wait, on virtual or real time, for a condition that no event signals."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not condition():
        assert loop.time() < deadline, f"{what}: not within {within_s:.0f} s"
        await asyncio.sleep(_POLL_S)
