"""Drills on consumer groups: a member dies, the coordinator dies."""

from __future__ import annotations

from typing import Final

from chaos.drills.drill import Drill
from chaos.drills.history import Expectations
from chaos.drills.stage import Stage

_MEMBERS: Final = 3


async def member_killed(stage: Stage) -> None:
    await stage.start_members(_MEMBERS)
    await stage.group_shares(_MEMBERS)
    await stage.steady()
    await stage.kill_member(stage.members[0])
    await stage.group_shares(_MEMBERS - 1)
    await stage.hold(3)
    stage.step("heal", "start another member")
    await stage.start_members(1)
    await stage.group_shares(_MEMBERS)
    await stage.hold(3)
    await stage.whole()


async def coordinator_killed(stage: Stage) -> None:
    await stage.start_members(2)
    await stage.group_shares(2)
    coordinator = await stage.coordinator()
    await stage.steady()
    await stage.kill(coordinator)
    await stage.hold(8)
    await stage.start(coordinator)
    await stage.whole()
    await stage.hold(3)


MEMBER_KILLED = Drill(
    name="member-killed",
    title="A member of a group is killed",
    what="kill -9 of a member. The others take its partitions when its session has ended.",
    course=member_killed,
    expectations=Expectations(recovery_ms=20_000, group_outage_ms=12_000, write_outage_ms=1_000),
)

COORDINATOR_KILLED = Drill(
    name="coordinator-killed",
    title="The coordinator of a group is killed",
    what="kill -9 of the broker that coordinates the group. Another one takes over its offsets.",
    course=coordinator_killed,
    expectations=Expectations(recovery_ms=20_000, group_outage_ms=8_000, write_outage_ms=2_000),
)

DRILLS: Final = (MEMBER_KILLED, COORDINATOR_KILLED)
