"""Drills on brokers: followers nap, leaders die, a paused leader wakes."""

from __future__ import annotations

from typing import Final

from chaos.drills.drill import Control, Drill
from chaos.drills.history import Expectations
from chaos.drills.stage import Stage
from chaos.drills.workload import Load

_SILENCE_MS: Final = 6_000
"""A silent broker is noticed after its session of 3 s; the rest is for a busy machine."""


async def follower_naps(stage: Stage) -> None:
    leader = await stage.leader_of(0)
    follower = stage.rng.choice([each for each in stage.cluster.broker_ids if each != leader])
    await stage.steady()
    await stage.pause(follower)
    await stage.out_of_isrs(follower)
    await stage.acknowledging()
    await stage.hold(3)
    await stage.resume(follower)
    await stage.whole()


async def two_followers_nap(stage: Stage) -> None:
    leader = await stage.leader_of(0)
    followers = [each for each in stage.cluster.broker_ids if each != leader]
    await stage.steady()
    await stage.pause(*followers)
    await stage.out_of_isrs(*followers)
    await stage.probe()
    await stage.hold(1)
    await stage.resume(*followers)
    await stage.whole()


async def leader_killed(stage: Stage) -> None:
    leader = await stage.leader_of(0)
    await stage.steady()
    await stage.kill(leader)
    await stage.leads_nothing(leader)
    await stage.acknowledging()
    await stage.hold(2)
    await stage.start(leader)
    await stage.whole()


async def leader_killed_before_followers_have_it(stage: Stage) -> None:
    """With acks=1 what the leader acknowledged while its followers slept dies with it."""
    leader = await stage.leader_of(0)
    followers = [each for each in stage.cluster.broker_ids if each != leader]
    await stage.steady()
    await stage.pause(*followers)
    await stage.hold(1)
    await stage.kill(leader)
    await stage.resume(*followers)
    await stage.leads_nothing(leader)
    await stage.hold(2)
    await stage.start(leader)
    await stage.whole()


async def zombie_leader(stage: Stage) -> None:
    leader = await stage.leader_of(0)
    led = await stage.led_by(leader)
    requests = await stage.requests_for(leader)
    await stage.steady()
    await stage.pause(leader)
    await stage.leads_nothing(leader)
    await stage.acknowledging()
    requests.send(led)
    await stage.hold(20)
    await stage.resume(leader)
    await requests.outcomes()
    await stage.whole()


FOLLOWER_NAPS = Drill(
    name="follower-naps",
    title="A follower naps",
    what="A follower is paused until it leaves the ISRs. Writes go on with the others.",
    course=follower_naps,
    expectations=Expectations(
        write_outage_ms=_SILENCE_MS,
        read_outage_ms=_SILENCE_MS + 3_000,
        recovery_ms=15_000,
        isr_least=2,
    ),
)

TWO_FOLLOWERS_NAP = Drill(
    name="two-followers-nap",
    title="Two followers nap",
    what="With one replica in sync of three, acks=all is refused, and works again later.",
    course=two_followers_nap,
    expectations=Expectations(refusal="NOT_ENOUGH_REPLICAS", recovery_ms=15_000, isr_least=1),
    control=Control(
        what="min.insync.replicas is 1",
        breaks="writes are refused",
        topic_configs={"min.insync.replicas": "1"},
    ),
)

LEADER_KILLED = Drill(
    name="leader-killed",
    title="A leader is killed",
    what="kill -9 of a leader under load. Another replica leads; nothing is lost.",
    course=leader_killed,
    expectations=Expectations(
        write_outage_ms=2_000, read_outage_ms=3_000, recovery_ms=20_000, elections=1, isr_least=2
    ),
    control=Control(
        what="acks=1, and the followers sleep while the leader acknowledges its last records",
        breaks="no acknowledged record is lost",
        course=leader_killed_before_followers_have_it,
        load=Load(acks=1),
    ),
)

ZOMBIE_LEADER = Drill(
    name="zombie-leader",
    title="A leader becomes a zombie",
    what="A leader is paused until others lead, and wakes with requests that waited for it.",
    course=zombie_leader,
    expectations=Expectations(
        write_outage_ms=_SILENCE_MS,
        read_outage_ms=_SILENCE_MS + 3_000,
        recovery_ms=15_000,
        elections=1,
        isr_least=2,
        zombie=True,
    ),
)

DRILLS: Final = (FOLLOWER_NAPS, TWO_FOLLOWERS_NAP, LEADER_KILLED, ZOMBIE_LEADER)
