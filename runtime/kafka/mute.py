"""The time for which a connection is not read, because its client is above a quota."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Mute:
    """The mute of one connection. ``on_end`` is called when the time is over. Nothing is taken
    until then, also of what the client has sent already."""

    __slots__ = ("_on_end", "_timer", "count", "is_on", "total_s")

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None
        self.is_on = False
        self.count = 0  # how often it began
        self.total_s = 0.0  # how long it lasted, and is to last

    def extend(self, seconds: float) -> None:
        """Last for this time from now on, at least."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() >= until_s:
                return
            self.total_s -= self._timer.when() - loop.time()
            self._timer.cancel()
        else:
            self.count += 1
        self.total_s += seconds
        self._timer = loop.call_at(until_s, self._end)
        self.is_on = True

    def cancel(self) -> None:
        """End without a call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.is_on = False

    def _end(self) -> None:
        self._timer = None
        self.is_on = False
        self._on_end()
