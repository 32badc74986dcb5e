"""Processes of drills."""

from __future__ import annotations

import asyncio

import pytest

from chaos.drills.child import Child
from stele.errors import SteleError

pytestmark = pytest.mark.processes

MODULE = "tests.support.chatterer"


async def test_what_it_prints_is_taken_until_it_is_stopped() -> None:
    told: list[object] = []
    child = Child(MODULE, told.append)
    await child.start("hello")
    async with asyncio.timeout(30):
        while not told:
            await asyncio.sleep(0.01)
    await child.stop()
    assert not child.is_running
    assert told == ["hello", "goodbye"]
    with pytest.raises(SteleError, match=f"{MODULE} has ended and cannot be paused"):
        child.pause()


async def test_it_ends_though_the_signal_that_ends_a_drill_has_cancelled_all_tasks() -> None:
    children = [Child(MODULE, lambda _: None) for _ in range(2)]
    for child in children:
        await child.start("hello")
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    for child in children:
        await child.stop()
    assert not any(child.is_running for child in children)


async def test_a_line_that_cannot_be_taken_is_reported_when_the_child_ends() -> None:
    heard = asyncio.Event()

    def take(_: object) -> None:
        heard.set()
        raise ValueError("cannot be taken")

    child = Child(MODULE, take)
    await child.start("hello")
    await heard.wait()
    with pytest.raises(ValueError, match="cannot be taken"):
        await child.stop()
    assert not child.is_running
