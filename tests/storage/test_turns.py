"""Long work lets other tasks run after so many steps."""

from __future__ import annotations

import asyncio

import pytest

from storage.turns import Slices


async def turns_of(items: int, steps: int) -> int:
    """How often another task has run while so many items were done."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    done = await Slices(steps).map(lambda item: item * 2, range(items))
    counting.cancel()
    assert done == [2 * item for item in range(items)]
    return turns


@pytest.mark.parametrize(
    ("items", "steps", "turns"), [(0, 4, 0), (2, 4, 0), (3, 4, 1), (6, 4, 1), (7, 4, 2), (9, 1, 10)]
)
async def test_items_are_counted_as_steps(items: int, steps: int, turns: int) -> None:
    """The list itself is one, too."""
    assert await turns_of(items, steps) == turns
