"""Virtual time and the life of a simulated process."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from chaos.sim.world.loop import SimulationStuckError
from chaos.sim.world.process import ProcessEndedError
from chaos.sim.world.simulation import Simulation, SimulationFailedError
from tests.support.worlds import simulated


@simulated(1)
async def test_time_moves_only_by_waiting(sim: Simulation) -> None:
    times = [sim.now]
    await asyncio.sleep(3600)
    times.append(sim.now)
    async with asyncio.timeout(1):
        await asyncio.sleep(0)
    times.append(asyncio.get_running_loop().time())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 5)
    times.append(sim.now)
    assert times == [0, 3600, 3600, 3605]


@simulated(1)
async def test_callbacks_run_in_order_of_due_time_then_of_scheduling(sim: Simulation) -> None:
    order: list[str] = []

    loop = asyncio.get_running_loop()
    loop.call_later(2, order.append, "late")
    loop.call_later(1, order.append, "early")
    loop.call_later(1, order.append, "early too")
    loop.call_later(0, order.append, "soon after")
    loop.call_soon(order.append, "soon")
    loop.call_later(1, order.append, "cancelled").cancel()
    await asyncio.sleep(3)

    assert order == ["soon", "soon after", "early", "early too", "late"]


@simulated(1)
async def test_the_outside_is_refused(sim: Simulation) -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(NotImplementedError):
        await asyncio.to_thread(print)
    with pytest.raises(NotImplementedError):
        await asyncio.open_connection("127.0.0.1", 1)
    with pytest.raises(NotImplementedError):
        loop.add_signal_handler(15, print)
    with pytest.raises(NotImplementedError):
        await asyncio.create_subprocess_exec("true")
    with pytest.raises(NotImplementedError):
        loop.call_soon_threadsafe(print)


def test_a_run_that_can_never_end_says_so() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationStuckError, match="nothing is scheduled"):
        Simulation(1).run(wait_forever())


def test_a_loop_that_never_waits_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.sim.world.loop._INSTANT_LIMIT", 1000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuckError, match="time stands still"):
        Simulation(1).run(spin())


@pytest.mark.filterwarnings("ignore")
def test_an_unhandled_failure_in_a_process_fails_the_run() -> None:
    sim = Simulation(1)

    async def main() -> None:
        process = sim.process("a")
        process.loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailedError, match="ZeroDivisionError"):
        sim.run(main())


async def ticking(ticks: list[float], sim: Simulation) -> None:
    try:
        while True:
            await asyncio.sleep(1)
            ticks.append(sim.now)
    finally:
        ticks.append(-1)
        asyncio.get_running_loop().call_soon(ticks.append, -2)
        asyncio.create_task(asyncio.sleep(1)).add_done_callback(lambda _: ticks.append(-3))
        await asyncio.sleep(1)
        ticks.append(-4)


@simulated(1)
async def test_a_killed_process_does_nothing_any_more(sim: Simulation) -> None:
    ticks: list[float] = []

    process = sim.process("a")
    process.start(ticking(ticks, sim))
    process.loop.call_later(5, ticks.append, -5)
    await asyncio.sleep(2.5)
    process.kill()
    await asyncio.sleep(10)
    assert process.dead
    assert process.loop.is_closed()

    assert ticks == [1, 2, -1]  # -1: its memory was cleaned up, which nobody can see


@simulated(1)
async def test_a_process_that_kills_itself_stops_there(sim: Simulation) -> None:
    ticks: list[str] = []

    process = sim.process("a")

    async def suicide() -> None:
        ticks.append("before")
        process.kill()
        await asyncio.sleep(1)
        ticks.append("after")

    process.start(suicide())
    await asyncio.sleep(10)

    assert ticks == ["before"]


@simulated(1)
async def test_waiting_for_a_process_that_dies_raises(sim: Simulation) -> None:
    process = sim.process("a")
    assert await process.run(asyncio.sleep(1, result=7)) == 7
    sim.scheduler.at(1, process.kill)
    with pytest.raises(ProcessEndedError):
        await process.run(asyncio.sleep(10))


@simulated(1)
async def test_a_paused_process_goes_on_later_and_its_clock_has_moved(sim: Simulation) -> None:
    ticks: list[float] = []

    process = sim.process("a")
    clock = process.world.clock
    start = clock.monotonic()
    task = process.start(ticking(ticks, sim))
    await asyncio.sleep(2.5)
    process.pause()
    await asyncio.sleep(10)
    assert ticks == [1, 2]
    assert clock.monotonic() - start == pytest.approx(12.5)
    process.resume()
    await asyncio.sleep(2)
    process.kill()
    del task

    assert ticks[:-1] == [1, 2, 12.5, 13.5]


@simulated(1)
async def test_after_a_pause_the_loops_own_time_is_stale_at_first(sim: Simulation) -> None:
    """uvloop reads the time once per turn: events that were ready before a SIGSTOP see the old
    time."""
    seen: list[tuple[float, float]] = []

    process = sim.process("a")
    loop = process.loop
    origin = process.world.clock.monotonic() - sim.now

    def look() -> None:
        clock = process.world.clock.monotonic() - origin
        seen.append((loop.time(), round(clock, 6)))

    await asyncio.sleep(1)
    process.pause()
    loop.call_soon(look)
    loop.call_later(3, look)
    await asyncio.sleep(10)
    process.resume()
    await asyncio.sleep(1)

    assert seen == [(1, 11), (11, 11)]


@simulated(1)
async def test_a_process_is_paused_while_its_disk_works_on(sim: Simulation) -> None:
    process = sim.process("a")
    disk = process.world.disk

    async def write() -> float:
        file = disk.open("/a", create=True)
        file.append([b"x"])
        await disk.sync(["/", "/a"])
        return sim.now

    writing = process.start(write())
    await asyncio.sleep(0)
    process.pause()
    await asyncio.sleep(1)
    process.resume()
    await asyncio.sleep(0.001)
    assert await writing == 1


@simulated(1)
async def test_a_dropped_generator_is_closed_by_its_own_process(sim: Simulation) -> None:
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            seen.append("closed")

    async for _ in numbers():
        break
    await asyncio.sleep(2)

    assert seen == ["closed"]


def test_clocks_of_machines_differ_and_can_jump() -> None:
    sim = Simulation(1)
    a, b = sim.process("a").world.clock, sim.process("b").world.clock
    assert a.monotonic() != b.monotonic()
    before, monotonic = a.time_ms(), a.monotonic()
    sim.machine("a").clock.jump(-5000)
    assert a.time_ms() == before - 5000
    assert a.monotonic() == monotonic
    assert abs(b.time_ms() - before) <= 100
    sim.scheduler.close()


@simulated(1)
async def test_a_watcher_sees_the_state_at_each_multiple_after_which_something_ran(
    sim: Simulation,
) -> None:
    state: list[float] = []
    seen: list[tuple[float, list[float]]] = []

    sim.scheduler.watch(0.01, lambda: seen.append((sim.now, list(state))))

    for moment in (0.004, 0.006, 0.013, 0.3):
        await asyncio.sleep(moment - sim.now)
        state.append(moment)

    # Called before time goes on, with the state of 0, of 10, and of 20 to 290 ms.
    assert [told for _, told in seen] == [[], [0.004, 0.006], [0.004, 0.006, 0.013]]
    assert [now for now, _ in seen] == [0.0, 0.006, 0.013]
