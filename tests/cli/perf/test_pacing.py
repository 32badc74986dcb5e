"""Records are sent in time, and what a stall delays counts from when it should have been sent."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from cli.perf.pacing import Pace, send_paced, send_unpaced
from tests.support.timing import LoopClock, run_virtual
from tests.support.worlds import virtual


@given(st.floats(0.1, 1e6), st.floats(0, 1e6), st.integers(0, 10_000))
def test_a_record_is_due_from_its_time_on(per_s: float, began_s: float, number: int) -> None:
    pace = Pace(per_s, began_s)
    at_s = pace.intended_s(number)
    assert pace.is_due(number, at_s)
    assert pace.is_due(number, at_s + 1)
    assert not pace.is_due(number, at_s - 1e-5)
    assert pace.is_due(0, began_s)


def sent(per_s: float, count: int, stalls: dict[int, float]) -> list[tuple[float, float]]:
    """(intended, sent) of each record, in seconds since the beginning. ``stalls``: how long the
    call for a record takes."""

    async def main() -> list[tuple[float, float]]:
        clock = LoopClock()
        found: list[tuple[float, float]] = []
        began = clock.monotonic()

        async def send(number: int, intended_s: float) -> None:
            assert number == len(found)
            found.append((intended_s - began, clock.monotonic() - began))
            if number in stalls:
                await asyncio.sleep(stalls[number])

        await send_paced(send, count, per_s, clock)
        return found

    return run_virtual(main())


def test_records_are_spread_evenly() -> None:
    found = sent(10, 21, {})
    assert [round(at, 3) for at, _ in found] == [round(n / 10, 3) for n in range(21)]
    assert all(0 <= late - at < 0.002 for at, late in found)


def test_a_stall_counts_for_every_record_that_it_delayed() -> None:
    found = sent(100, 300, {50: 1.0})
    delays = [late - at for at, late in found]
    assert max(delays[:51]) < 0.002
    assert 0.98 < delays[51] < 1.0
    assert 0.48 < delays[101] < 0.52
    assert max(delays[152:]) < 0.002
    # A clock that started at each send would have seen one slow record of 300.
    assert sum(delay > 0.1 for delay in delays) > 85


@virtual
async def test_it_catches_up_without_keeping_the_loop_busy() -> None:
    """After a long stall other tasks have their turns."""

    clock = LoopClock()
    turns = 0
    done = False

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    async def send(number: int, intended_s: float) -> None:
        if number == 0:
            clock.skipped_s += 100

    other = asyncio.get_running_loop().create_task(others())
    await send_paced(send, 10_000, 1000, clock)
    done = True
    await other
    assert turns > 100


@settings(max_examples=50)
@given(
    st.floats(0.5, 5000),
    st.integers(1, 300),
    st.dictionaries(st.integers(0, 299), st.floats(0, 3), max_size=3),
)
def test_all_are_sent_and_none_too_early(
    per_s: float, count: int, stalls: dict[int, float]
) -> None:
    found = sent(per_s, count, stalls)
    assert len(found) == count
    assert all(late >= at - 2e-6 for at, late in found)


@virtual
async def test_without_a_target_the_time_of_the_call_counts() -> None:
    clock = LoopClock()
    found = []

    async def send(number: int, intended_s: float) -> None:
        found.append((number, clock.monotonic() - intended_s))
        await asyncio.sleep(0.1)

    await send_unpaced(send, 100, clock)
    assert found == [(number, 0.0) for number in range(100)]
