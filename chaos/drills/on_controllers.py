"""Drills on controllers: the active one dies, most are gone, a paused one wakes."""

from __future__ import annotations

from typing import Final

from chaos.drills.drill import SHORT_TIMES, Drill
from chaos.drills.history import Expectations
from chaos.drills.stage import Stage


async def controller_killed(stage: Stage) -> None:
    active = await stage.active_controller()
    await stage.steady()
    await stage.kill(active)
    await stage.until_active_controller_other_than(active)
    await stage.hold(2)
    await stage.start(active)
    await stage.whole()


async def controller_majority_lost(stage: Stage) -> None:
    active = await stage.active_controller()
    other = stage.rng.choice([each for each in stage.cluster.controller_ids if each != active])
    await stage.steady()
    await stage.kill(active, other)
    await stage.hold(3)
    await stage.start(active, other)
    await stage.whole()


async def zombie_controller(stage: Stage) -> None:
    active = await stage.active_controller()
    await stage.steady()
    await stage.pause(active)
    await stage.until_active_controller_other_than(active)
    await stage.hold(8)
    await stage.resume(active)
    await stage.whole()


CONTROLLER_KILLED = Drill(
    name="controller-killed",
    title="The active controller is killed",
    what="kill -9 of the active controller under load. Another one takes over; writes go on.",
    course=controller_killed,
    expectations=Expectations(
        write_outage_ms=1_000, read_outage_ms=2_000, recovery_ms=20_000, quorum_elections=1
    ),
)

CONTROLLER_MAJORITY_LOST = Drill(
    name="controller-majority-lost",
    title="Most controllers are lost, and come back",
    what="Two of three controllers are killed, for less than a broker's session. Writes go on.",
    course=controller_majority_lost,
    expectations=Expectations(
        write_outage_ms=2_000, read_outage_ms=3_000, recovery_ms=20_000, quorum_elections=1
    ),
    # Longer than the controllers are away, however slowly they start: a leader acknowledges
    # nothing when its session with the controllers has ended.
    settings={**SHORT_TIMES, "broker.session.timeout.ms": "45000"},
)

ZOMBIE_CONTROLLER = Drill(
    name="zombie-controller",
    title="The active controller becomes a zombie",
    what="The active controller is paused until another one leads, and wakes.",
    course=zombie_controller,
    expectations=Expectations(
        write_outage_ms=3_000, read_outage_ms=3_000, recovery_ms=15_000, quorum_elections=1
    ),
)

DRILLS: Final = (CONTROLLER_KILLED, CONTROLLER_MAJORITY_LOST, ZOMBIE_CONTROLLER)
