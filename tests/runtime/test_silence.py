"""Silence is measured while the loop runs."""

from __future__ import annotations

import asyncio
import time

import pytest

from runtime.silence import silence
from tests.support.worlds import virtual


@virtual
async def test_silence_is_over_after_its_time() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with silence(1.5):
            await loop.create_future()
    assert loop.time() == pytest.approx(1.5)


@virtual
async def test_what_comes_in_time_ends_it_and_nothing_fires_later() -> None:
    async with silence(1.0):
        await asyncio.sleep(0.99)
    await asyncio.sleep(10.0)
    assert asyncio.get_running_loop().time() == pytest.approx(10.99)


async def test_a_stall_of_this_process_is_no_silence_of_the_peer() -> None:
    """The message is there when the loop goes on, but a few turns of the loop pass until it is
    read."""
    loop = asyncio.get_running_loop()
    message: asyncio.Future[str] = loop.create_future()

    def read(turns: int) -> None:
        if turns:
            loop.call_soon(read, turns - 1)
        else:
            message.set_result("heard")

    loop.call_later(0.01, time.sleep, 0.5)
    loop.call_later(0.02, read, 10)
    async with silence(0.4):
        assert await message == "heard"


async def test_cancelling_from_outside_is_no_timeout() -> None:
    async def wait() -> None:
        async with silence(10.0):
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
