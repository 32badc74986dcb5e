"""How events reach a replica's core, and what its parts learn from that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raft.api import LeaderAndEpoch, NotLeaderError
from raft.ready import Ready, Role, Status
from runtime.quorum.driver import Driver
from stele.world import RpcError
from tests.support.timing import LoopClock
from tests.support.worlds import virtual

NOW = 50.0  # it stands still


class _Core:
    """A core that leads epoch 1 and records its calls."""

    def __init__(self) -> None:
        self.minds_room = False
        self.told: list[object] = []
        self.role = Role.LEADER
        self.epoch = 1

    def tell_room(self, has_room: bool) -> None:
        self.told.append(has_room)

    def tick(self, now: float) -> Ready:
        self.told.append("tick")
        return Ready()


class _Bench:
    def __init__(self) -> None:
        self.carried_out: list[Ready] = []
        self.errors: list[BaseException] = []
        self.core = _Core()
        self.has_room = True
        self.driver = Driver(
            cast(Any, SimpleNamespace(monotonic=lambda: NOW)),
            carry_out=self.carried_out.append,
            fail=self.errors.append,
        )
        self.driver.begin(
            cast(Any, self.core), cast(Any, SimpleNamespace(has_room=lambda: self.has_room))
        )

    def event(self, ready: Ready | None = None) -> Ready:
        ready = Ready() if ready is None else ready
        self.driver.take(lambda core, now: ready)
        return ready


def test_what_the_core_says_is_carried_out() -> None:
    bench = _Bench()
    assert bench.carried_out == [bench.event()]
    assert not bench.errors


def test_an_event_that_fails_is_reported_and_not_raised() -> None:
    bench = _Bench()
    failure = ValueError("no")

    def fail(core: object, now: float) -> Ready:
        raise failure

    bench.driver.take(fail)
    assert bench.errors == [failure]
    assert not bench.carried_out


def test_room_is_measured_for_a_core_that_minds_it() -> None:
    bench = _Bench()
    bench.event()
    assert bench.core.told == []
    bench.core.minds_room = True
    bench.event()
    bench.has_room = False
    bench.event()
    assert bench.core.told == [True, False]


def test_after_the_end_there_are_no_events() -> None:
    bench = _Bench()
    bench.driver.status = Status(Role.FOLLOWER, 2, 3)
    bench.driver.end()
    bench.event()
    assert not bench.carried_out
    with pytest.raises(NotLeaderError) as refusal:
        bench.driver.leading()
    assert refusal.value.leader == LeaderAndEpoch(3, 2)
    with pytest.raises(RpcError, match="does not run"):
        bench.driver.running()


@pytest.mark.parametrize("epoch", [None, 1])
def test_who_leads(epoch: int | None) -> None:
    bench = _Bench()
    assert bench.driver.leading(epoch) is bench.driver.core
    with pytest.raises(NotLeaderError):
        bench.driver.leading(2)
    bench.core.role = Role.RESIGNED
    with pytest.raises(NotLeaderError):
        bench.driver.leading(epoch)


@virtual
async def test_who_waits_looks_again_after_every_event() -> None:
    bench = _Bench()
    looked = 0

    def is_third_look() -> bool:
        nonlocal looked
        looked += 1
        return looked == 3

    waiting = asyncio.get_running_loop().create_task(bench.driver.until(is_third_look))
    for _ in range(2):
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.event()
    await waiting


@virtual
async def test_the_core_is_ticked_at_the_earliest_deadline() -> None:
    bench = _Bench()
    bench.event(Ready(deadline=NOW + 100))
    bench.event(Ready(deadline=NOW))
    bench.event(Ready(deadline=NOW + 200))
    await bench.driver.until(lambda: len(bench.carried_out) == 4)
    assert bench.core.told == ["tick"]


@virtual
async def test_one_that_stops_is_not_ticked() -> None:
    bench = _Bench()
    bench.event(Ready(deadline=NOW))
    bench.driver.stop_ticking()
    bench.event(Ready(deadline=NOW))
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.core.told == []


@virtual
async def test_after_a_stall_messages_are_read_before_the_core_hears_the_time() -> None:
    """Example: a leader must not resign because it has not read what its followers have sent."""
    clock = LoopClock()
    core = _Core()
    driver = Driver(clock, carry_out=lambda ready: None, fail=raised)
    driver.begin(cast(Any, core), cast(Any, SimpleNamespace(has_room=lambda: True)))

    def event(core: object, now: float) -> Ready:
        cast(Any, core).told.append("event")
        return Ready(deadline=1.0)

    driver.take(event)
    await asyncio.sleep(0.5)
    clock.skipped_s = 2.0  # the loop did not run
    await asyncio.sleep(0.55)
    driver.take(event)
    await asyncio.sleep(0.02)
    assert core.told == ["event", "event"]
    await asyncio.sleep(0.05)
    assert core.told == ["event", "event", "tick"]


@virtual
async def test_a_deadline_that_is_over_when_it_is_set_is_no_stall() -> None:
    clock = LoopClock()
    core = _Core()
    driver = Driver(clock, carry_out=lambda ready: None, fail=raised)
    driver.begin(cast(Any, core), cast(Any, SimpleNamespace(has_room=lambda: True)))

    await asyncio.sleep(5.0)
    driver.take(lambda core, now: Ready(deadline=1.0))
    await asyncio.sleep(0.0)
    await asyncio.sleep(0.001)
    assert core.told == ["tick"]


def raised(error: BaseException) -> None:
    raise error
