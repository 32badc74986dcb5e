"""Drills on the whole cluster: all replicas down, a power cut, a rolling restart."""

from __future__ import annotations

import itertools
from typing import Final

from chaos.drills.drill import TWO_IN_SYNC, Control, Drill
from chaos.drills.history import Expectations
from chaos.drills.stage import Stage

_UNCLEAN: Final = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
_KILLS_APART_S: Final = 1.0
_STARTS_APART_S: Final = 2.0


async def all_down_in_every_order(stage: Stage) -> None:
    await stage.steady()
    for order in itertools.permutations(stage.cluster.broker_ids):
        for broker in stage.cluster.broker_ids:
            await stage.kill(broker)
            await stage.hold(_KILLS_APART_S)
        for broker in order:
            await stage.start(broker)
            await stage.hold(_STARTS_APART_S)
        await stage.whole()


async def the_stale_one_first(stage: Stage) -> None:
    """The last in-sync replica has records that no other has, and comes back last."""
    leader = await stage.leader_of(0)
    followers = [each for each in stage.cluster.broker_ids if each != leader]
    await stage.steady()
    await stage.kill(*followers)
    await stage.out_of_isrs(*followers)
    await stage.acknowledging()
    await stage.hold(1)
    await stage.kill(leader)
    await stage.start(*followers)
    await stage.hold(8)
    await stage.start(leader)
    await stage.whole()


async def power_cut(stage: Stage) -> None:
    nodes = (*stage.cluster.broker_ids, *stage.cluster.controller_ids)
    await stage.steady()
    await stage.kill(*nodes)
    await stage.hold(1)
    await stage.start(*nodes)
    await stage.whole()


async def rolling_restart(stage: Stage) -> None:
    await stage.steady()
    for node in (*stage.cluster.controller_ids, *stage.cluster.broker_ids):
        await stage.stop(node)
        await stage.start(node)
        await stage.whole()


ALL_DOWN = Drill(
    name="all-replicas-down",
    title="All replicas are down, and come back in every order",
    what="The brokers are killed one after the other. No election is unclean, nothing is lost.",
    course=all_down_in_every_order,
    expectations=Expectations(recovery_ms=30_000, elections=6, isr_least=1),
    topic_configs=TWO_IN_SYNC,
    control=Control(
        what="unclean elections are allowed, min.insync.replicas is 1, the stale ones come first",
        breaks="no acknowledged record is lost",
        course=the_stale_one_first,
        topic_configs=_UNCLEAN,
    ),
)

ALL_DOWN_UNCLEAN = Drill(
    name="all-replicas-down-unclean",
    title="All replicas are down, and a stale one may lead",
    what="Unclean elections are allowed: what is lost is shown, and the elections are counted.",
    course=the_stale_one_first,
    expectations=Expectations(
        loses=True, duplicates=True, recovery_ms=30_000, elections=1, unclean_elections=1
    ),
    topic_configs=_UNCLEAN,
    control=Control(
        what="unclean elections are not allowed, so nothing is lost",
        breaks="acknowledged records are lost",
        topic_configs={"min.insync.replicas": "1"},
    ),
)

POWER_CUT = Drill(
    name="power-cut",
    title="The power of the whole cluster is cut",
    what="kill -9 of all nodes at once under load, and a start of all of them.",
    course=power_cut,
    expectations=Expectations(recovery_ms=30_000, elections=1),
)

ROLLING_RESTART = Drill(
    name="rolling-restart",
    title="A rolling restart under load",
    what="Every node is stopped in good order and started again, one after the other.",
    course=rolling_restart,
    expectations=Expectations(
        write_outage_ms=2_000, read_outage_ms=3_000, recovery_ms=20_000, elections=1
    ),
)

DRILLS: Final = (ALL_DOWN, ALL_DOWN_UNCLEAN, POWER_CUT, ROLLING_RESTART)
