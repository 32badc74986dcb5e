"""How much one process does in a turn of its simulated event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from chaos.sim.world.loop import SimLoop


class Turns:
    """Counts the calls of functions in each turn of one process's event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop: SimLoop | None = None
        self.most = 0
        self._calls = 0
        call_soon = SimLoop.call_soon

        def counted(
            loop: SimLoop, callback: Callable[..., object], *args: Any, context: Any = None
        ) -> asyncio.Handle:
            if loop is not self.loop:
                return call_soon(loop, callback, *args, context=context)
            return call_soon(loop, self._count, callback, *args, context=context)

        monkeypatch.setattr(SimLoop, "call_soon", counted)

    def _count(self, callback: Callable[..., object], *args: Any) -> None:
        before = sys.getprofile()
        self._calls = 0
        sys.setprofile(self._called)
        try:
            callback(*args)
        finally:
            sys.setprofile(before)
            self.most = max(self.most, self._calls)

    def _called(self, frame: object, event: str, what: object) -> None:
        self._calls += event in ("call", "c_call")
