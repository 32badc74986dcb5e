"""The times at which records should be sent, whatever happens to the records before them.

A latency is measured from the time at which the record should have been sent. If it were measured
from the actual time, a slow cluster would delay the measurements as well: the records that it held
back would not count, and the percentiles would hide what the users of such a cluster see
(coordinated omission).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from stele.world import Clock

Send = Callable[[int, float], Awaitable[None]]
"""Sends a record: its number, and the time in seconds at which it was to be sent."""

_BURST: Final = 64
"""The most records that are sent before others on the loop have their turn."""

_SLACK_S: Final = 1e-6
"""A record may be sent so much too early. Without it, a sum of floats could be just below its time,
and the loop would be woken again and again."""


class Pace:
    """Records at even distances, from ``began_s`` on."""

    def __init__(self, per_s: float, began_s: float) -> None:
        self._per_s = per_s
        self._began_s = began_s

    def intended_s(self, number: int) -> float:
        return self._began_s + number / self._per_s

    def is_due(self, number: int, now_s: float) -> bool:
        return self.intended_s(number) <= now_s + _SLACK_S


async def send_paced(send: Send, count: int, per_s: float, clock: Clock) -> None:
    """Send ``count`` records, ``per_s`` of them each second. If it falls behind, it catches up."""
    pace = Pace(per_s, clock.monotonic())
    sent = 0
    while sent < count:
        now, limit = clock.monotonic(), min(sent + _BURST, count)
        while sent < limit and pace.is_due(sent, now):
            await send(sent, pace.intended_s(sent))
            sent += 1
        await asyncio.sleep(max(pace.intended_s(sent) - clock.monotonic(), 0.0))


async def send_unpaced(send: Send, count: int, clock: Clock) -> None:
    """Send ``count`` records as fast as they are taken."""
    for number in range(count):
        await send(number, clock.monotonic())
        if number % _BURST == _BURST - 1:
            await asyncio.sleep(0)
