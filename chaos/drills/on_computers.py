"""Drills on what nodes run on: disks that are full or slow, clocks that jump."""

from __future__ import annotations

from typing import Final

from chaos.drills.drill import SHORT_TIMES, Control, Drill
from chaos.drills.history import Expectations
from chaos.drills.needs import Need
from chaos.drills.stage import Stage

_AHEAD_S: Final = 3 * 3600
_BEHIND_S: Final = -1800
_TOO_FAR_BEHIND_S: Final = -2 * 3600
"""More than message.timestamp.after.max.ms, an hour: a leader must refuse what is of now."""


async def disk_full(stage: Stage) -> None:
    leader = await stage.leader_of(0)
    await stage.steady()
    await stage.fill_disk(leader)
    await stage.leads_nothing(leader)
    await stage.acknowledging()
    await stage.hold(3)
    await stage.free_disk(leader)
    await stage.whole()


async def all_disks_full(stage: Stage) -> None:
    brokers = stage.cluster.broker_ids
    await stage.steady()
    for broker in brokers:
        await stage.fill_disk(broker)
    await stage.hold(12)
    for broker in brokers:
        await stage.free_disk(broker)
    await stage.whole()


async def disk_slow(stage: Stage) -> None:
    await _disk_slow(stage, 10)


async def disk_stands_still(stage: Stage) -> None:
    await _disk_slow(stage, 1)


async def _disk_slow(stage: Stage, writes_per_s: int) -> None:
    leader = await stage.leader_of(0)
    await stage.steady()
    await stage.slow_disk(leader, writes_per_s)
    await stage.hold(10)
    await stage.restore_disk(leader)
    await stage.whole()


async def clock_jumps(stage: Stage) -> None:
    """The clocks of the leader and of the active controller jump, in both directions."""
    await _clock_jumps(stage, _AHEAD_S, _BEHIND_S)


async def clock_far_behind(stage: Stage) -> None:
    await _clock_jumps(stage, _TOO_FAR_BEHIND_S)


async def _clock_jumps(stage: Stage, *jumps_s: int) -> None:
    leader, controller = await stage.leader_of(0), await stage.active_controller()
    await stage.steady()
    for ahead_s in jumps_s:
        for node in (leader, controller):
            await stage.set_clock(node, ahead_s)
        await stage.hold(5)
    for node in (leader, controller):
        await stage.restore_clock(node)
    await stage.whole()


DISK_FULL: Final = Drill(
    name="disk-full",
    title="The disk of a leader is full",
    what="A leader has no room left on its disk. Others lead until it has room again.",
    course=disk_full,
    expectations=Expectations(write_outage_ms=9_000, recovery_ms=30_000, elections=1, isr_least=2),
    control=Control(
        what="the disks of all brokers are full",
        breaks="outage of writes",
        course=all_disks_full,
    ),
    needs=frozenset({Need.SMALL_DISKS}),
)

DISK_SLOW: Final = Drill(
    name="disk-slow",
    title="The disk of a leader is slow",
    what="A leader can write ten times a second. Writes take longer, and go on.",
    course=disk_slow,
    settings={**SHORT_TIMES, "log.sync.method": "process"},  # the kernel's workers are not slowed
    expectations=Expectations(write_outage_ms=5_000, recovery_ms=20_000),
    control=Control(
        what="its disk takes one write a second",
        breaks="outage of writes",
        course=disk_stands_still,
    ),
    needs=frozenset({Need.SLOW_DISKS}),
)

CLOCK_JUMPS: Final = Drill(
    name="clock-jumps",
    title="Clocks jump",
    what="The clocks of a leader and of the active controller jump by hours. Nobody need notice.",
    course=clock_jumps,
    expectations=Expectations(write_outage_ms=2_000, recovery_ms=15_000, elections_most=0),
    control=Control(
        what="they go back so far that records of the present are refused",
        breaks="outage of writes",
        course=clock_far_behind,
    ),
    needs=frozenset({Need.FALSE_CLOCKS}),
)

DRILLS: Final = (DISK_FULL, DISK_SLOW, CLOCK_JUMPS)
