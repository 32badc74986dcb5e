"""The steps of an end: all of them are done, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runtime.orderly_end import OrderlyEnd


def waiting(name: str, taken: list[str]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def step() -> None:
        taken.append(name)
        await asyncio.sleep(0)
        taken.append(f"{name} done")

    return step


async def test_the_newest_step_comes_first_and_each_once() -> None:
    taken: list[str] = []
    end = OrderlyEnd()
    end.push(lambda: taken.append("release"))
    end.push(waiting("close", taken))
    await end.run()
    await end.run()
    assert taken == ["close", "close done", "release"]


async def test_a_failure_is_raised_when_all_is_done(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[str] = []

    async def fails() -> None:
        raise OSError("no such disk")

    end = OrderlyEnd()
    end.push(waiting("last", taken))
    end.push(fails)
    with pytest.raises(OSError, match="no such disk"):
        await end.run()
    assert taken == ["last", "last done"]
    assert "no such disk" in caplog.text


async def test_a_cancellation_ends_one_step_and_each_further_one_another() -> None:
    taken: list[str] = []
    end = OrderlyEnd()
    for number in range(4):
        end.push(waiting(f"step {number}", taken))
    task = asyncio.create_task(end.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [name for name in taken if "done" not in name] == [f"step {n}" for n in (3, 2, 1, 0)]
    assert taken[-4:] == ["step 1", "step 1 done", "step 0", "step 0 done"]


def test_nothing_follows_when_the_coroutine_itself_is_closed() -> None:
    """As if its process was killed in the middle of it."""
    taken: list[str] = []
    end = OrderlyEnd()
    end.push(lambda: taken.append("too late"))
    end.push(waiting("first", taken))
    run = end.run()
    run.send(None)
    run.close()
    assert taken == ["first"]
