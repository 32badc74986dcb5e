"""A peer's silence, measured by a process that may have stood still itself.

An event loop on a busy machine may not run for a second. Then everything that the peer has sent
meanwhile is unread, and every timeout is over at once. Such a timeout says nothing about the peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

STALL_S: Final = 0.2
"""If a timer fires this much later than planned, the process has stood still."""

_PARTS: Final = 8


@asynccontextmanager
async def silence(limit_s: float) -> AsyncIterator[None]:
    """Raise TimeoutError after ``limit_s`` within the block, as ``asyncio.timeout`` does, but do
    not count the time in which the loop stood still.

    The time is measured in parts, one timer after the other, and the next one begins only when the
    loop has run the one before. So a stall of any length counts as one part, and what came
    meanwhile is read before the other parts are over.
    """
    loop = asyncio.get_running_loop()
    part_s, left = limit_s / _PARTS, _PARTS
    timer: asyncio.TimerHandle

    def is_over() -> None:
        nonlocal left, timer
        left -= 1
        if left:
            timer = loop.call_later(part_s, is_over)
        else:
            timeout.reschedule(loop.time())

    async with asyncio.timeout(None) as timeout:
        timer = loop.call_later(part_s, is_over)
        try:
            yield
        finally:
            timer.cancel()
