"""When a leader looks who lags."""

from __future__ import annotations

import asyncio

from broker.replication.housekeeping import every_on_time
from tests.support.worlds import virtual


class _LateLoop:
    """Sleeps of the test end so much later than asked for."""

    def __init__(self) -> None:
        self.late_s = [0.0, 5.0, 5.0, 0.1, 5.0, 0.0]
        self.checked_at: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        if not self.late_s:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(delay_s + self.late_s.pop(0))

    async def check(self) -> None:
        self.checked_at.append(asyncio.get_running_loop().time())


@virtual
async def test_after_a_stall_followers_are_heard_before_they_are_judged() -> None:
    """A round after a stall is left out, but never two in a row."""

    late = _LateLoop()
    task = asyncio.create_task(every_on_time(1.0, late.check, sleep=late.sleep))
    await asyncio.sleep(100.0)
    task.cancel()
    assert [round(at, 3) for at in late.checked_at] == [1.0, 13.0, 14.1, 21.1]
