"""How much consumers may read in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from broker.replication.fetch_waiting import WaitingFetch

TURN_BYTES = 256 * 1024
"""Once consumers have read so many bytes, in one turn of the event loop or in several, further
fetches of consumers wait for the next turn, whether they have just come, are due or were woken. So
requests of producers and followers come between, however busy the consumers are."""


class ConsumerTurns:
    """The bytes left in this turn, and the fetches that wait for the next one."""

    def __init__(self, look: Callable[[WaitingFetch], None]) -> None:
        """``look`` looks at a fetch whose turn has come."""
        self._look = look
        self._left_bytes = TURN_BYTES
        self._queued: deque[WaitingFetch] = deque()

    @property
    def is_open(self) -> bool:
        """Whether more may be read in this turn."""
        return self._left_bytes > 0

    def use(self, read_bytes: int) -> None:
        was_open = self._left_bytes > 0
        self._left_bytes -= read_bytes
        if was_open and self._left_bytes <= 0:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def queue(self, waiting: WaitingFetch) -> None:
        """Look at a fetch in a later turn."""
        if not waiting.is_queued:
            waiting.is_queued = True
            self._queued.append(waiting)

    def _next_turn(self) -> None:
        self._left_bytes = TURN_BYTES
        while self._queued and self._left_bytes > 0:
            waiting = self._queued.popleft()
            waiting.is_queued = False
            self._look(waiting)
