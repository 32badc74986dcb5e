"""How much one process does in a turn of its simulated event loop."""

from __future__ import annotations

import asyncio
import sys
from _lsprof import Profiler
from collections.abc import Callable
from typing import Any

import pytest

from chaos.sim.world.loop import SimLoop


class Turns:
    """Counts the calls of functions in each turn of one process's event loop.

    The interpreter's own profiler counts: a function of Python that heard of every call would take
    most of a test's time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop: SimLoop | None = None
        self.most = 0
        self._profiler = Profiler(builtins=True)
        call_soon = SimLoop.call_soon

        def counted(
            loop: SimLoop, callback: Callable[..., object], *args: Any, context: Any = None
        ) -> asyncio.Handle:
            if loop is not self.loop:
                return call_soon(loop, callback, *args, context=context)
            return call_soon(loop, self._count, callback, *args, context=context)

        monkeypatch.setattr(SimLoop, "call_soon", counted)

    def _count(self, callback: Callable[..., object], *args: Any) -> None:
        before, profiler = sys.getprofile(), self._profiler
        profiler.enable()
        try:
            callback(*args)
        finally:
            profiler.disable()
            sys.setprofile(before)
            calls = sum(each.callcount for each in profiler.getstats())
            profiler.clear()
            self.most = max(self.most, calls)
