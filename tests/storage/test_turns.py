"""Long work lets other tasks run after so many steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from storage.turns import Slices

Items = Callable[[range], Iterable[int]]


async def turns_of(items: int, steps: int, given: Items = list) -> int:
    """How often another task has run while so many items were done."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    done = await Slices(steps).map(lambda item: item * 2, given(range(items)))
    counting.cancel()
    assert done == [2 * item for item in range(items)]
    return turns


@pytest.mark.parametrize("given", [list, iter], ids=["sized", "unsized"])
@pytest.mark.parametrize(
    ("items", "steps", "turns"), [(0, 4, 0), (2, 4, 0), (3, 4, 1), (6, 4, 1), (7, 4, 2), (9, 1, 10)]
)
async def test_items_are_counted_as_steps(items: int, steps: int, turns: int, given: Items) -> None:
    """The list itself is one, too."""
    assert await turns_of(items, steps, given) == turns


async def test_lists_of_one_work_share_its_steps() -> None:
    slices, turns = Slices(4), 0

    def begin(item: int) -> int:
        return turns + 0 * item

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    seen = [await slices.map(begin, [0]) for _ in range(4)]
    counting.cancel()
    assert seen == [[0], [0], [1], [1]]
