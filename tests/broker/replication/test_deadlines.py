"""The deadline wheel."""

from __future__ import annotations

import asyncio
import gc

from broker.replication.deadlines import Deadline, DeadlineWheel
from tests.support.timing import LoopClock
from tests.support.worlds import virtual


@virtual
async def test_deadlines_pass_in_their_order_and_not_before_their_time() -> None:
    wheel = DeadlineWheel(LoopClock())
    loop = asyncio.get_running_loop()
    passed: list[tuple[str, float]] = []

    def note(name: str) -> None:
        passed.append((name, loop.time()))

    wheel.add(300, lambda: note("c"))
    wheel.add(100, lambda: note("a"))
    wheel.add(200, lambda: note("b"))
    await asyncio.sleep(1)
    assert [name for name, _ in passed] == ["a", "b", "c"]
    for (_, at), due in zip(passed, (0.1, 0.2, 0.3), strict=True):
        assert due <= at <= due + 0.011
    assert len(wheel) == 0


@virtual
async def test_a_cancelled_one_does_not_pass() -> None:
    wheel = DeadlineWheel(LoopClock())
    passed: list[str] = []
    deadline = wheel.add(100, lambda: passed.append("a"))
    wheel.add(100, lambda: passed.append("b"))
    deadline.cancel()
    deadline.cancel()
    assert len(wheel) == 1
    await asyncio.sleep(1)
    assert passed == ["b"]
    deadline.cancel()
    assert len(wheel) == 0


@virtual
async def test_one_may_be_added_and_another_cancelled_from_a_callback() -> None:
    wheel = DeadlineWheel(LoopClock())
    passed: list[str] = []
    second = wheel.add(100, lambda: passed.append("second"))

    def first() -> None:
        passed.append("first")
        second.cancel()
        wheel.add(50, lambda: passed.append("third"))

    wheel.add(90, first)
    await asyncio.sleep(1)
    assert passed == ["first", "third"]


def _deadlines_in_memory() -> int:
    return sum(type(each) is Deadline for each in gc.get_objects())


@virtual
async def test_many_cancelled_ones_are_swept() -> None:
    wheel = DeadlineWheel(LoopClock())
    gc.collect()
    before = _deadlines_in_memory()
    for _ in range(10_000):
        wheel.add(60_000, lambda: None).cancel()
    assert _deadlines_in_memory() - before <= 300
    passed: list[int] = []
    wheel.add(60_000, lambda: passed.append(1))
    await asyncio.sleep(61)
    assert passed == [1]


@virtual
async def test_nothing_passes_after_closing() -> None:
    wheel = DeadlineWheel(LoopClock())
    passed: list[int] = []
    deadline = wheel.add(100, lambda: passed.append(1))
    wheel.close()
    await asyncio.sleep(1)
    deadline.cancel()
    assert passed == []
