"""Drills on the network: a broker is cut off from controllers or from brokers, perhaps in one
direction, or its messages are late.

A cut drops packets without a notice, as a broken switch does. Clients still reach every broker.
"""

from __future__ import annotations

from typing import Final

from chaos.drills.drill import Control, Drill
from chaos.drills.history import Expectations
from chaos.drills.needs import Need
from chaos.drills.stage import Stage

_SILENCE_MS: Final = 12_000
"""A broker's session of 3 s, and what a busy machine of containers adds."""

_READERS_STAY_MS: Final = 6_000
"""Consumers find the next leader so long after its first records. The broker is cut off for longer
than that."""


async def cut_off_from_controllers(stage: Stage) -> None:
    leader = await stage.leader_of(0)
    controllers = stage.cluster.controller_ids
    requests = await stage.requests_for(leader)
    led = await stage.led_by(leader)
    await stage.steady()
    await stage.cut([leader], controllers, f"broker {leader} reaches no controller")
    await stage.cut(controllers, [leader], f"no controller reaches broker {leader}")
    await stage.leads_nothing(leader)
    requests.send(led)
    await stage.acknowledging()
    await requests.outcomes()
    await stage.reconnect()
    await stage.whole()


async def cut_off_from_brokers(stage: Stage) -> None:
    leader = await stage.leader_of(0)
    others = [each for each in stage.cluster.broker_ids if each != leader]
    await stage.steady()
    await stage.cut([leader], others, f"broker {leader} reaches no other broker")
    await stage.cut(others, [leader], f"no other broker reaches broker {leader}")
    await stage.hold(12)
    await stage.reconnect()
    await stage.whole()


async def cut_off_one_way(stage: Stage) -> None:
    leader = await stage.leader_of(0)
    others = [*stage.cluster.controller_ids, *stage.cluster.broker_ids]
    others.remove(leader)
    await stage.steady()
    await stage.cut([leader], others, f"what broker {leader} sends reaches no other node")
    await stage.leads_nothing(leader)
    await stage.acknowledging()
    await stage.hold(3)
    await stage.reconnect()
    await stage.whole()


async def slow_network(stage: Stage) -> None:
    await _slow_network(stage, 250)


async def very_slow_network(stage: Stage) -> None:
    await _slow_network(stage, 6_000)


async def _slow_network(stage: Stage, delay_ms: float) -> None:
    leader = await stage.leader_of(0)
    await stage.steady()
    await stage.slow_network(leader, delay_ms)
    await stage.hold(12)
    await stage.restore_network(leader)
    await stage.whole()


FROM_CONTROLLERS: Final = Drill(
    name="cut-off-from-controllers",
    title="A broker is cut off from the controllers",
    what="A leader reaches brokers and clients, no controller. It gives way, and knows it.",
    course=cut_off_from_controllers,
    expectations=Expectations(
        write_outage_ms=_SILENCE_MS,
        read_outage_ms=_READERS_STAY_MS,
        recovery_ms=30_000,
        elections=1,
        isr_least=2,
        zombie=True,
    ),
    needs=frozenset({Need.CUTS}),
)

FROM_BROKERS: Final = Drill(
    name="cut-off-from-brokers",
    title="A broker is cut off from the other brokers",
    what="A leader reaches the controllers and clients, and no other broker. Nothing is lost.",
    course=cut_off_from_brokers,
    expectations=Expectations(recovery_ms=30_000, isr_least=2),
    needs=frozenset({Need.CUTS}),
)

ONE_WAY: Final = Drill(
    name="cut-off-one-way",
    title="What a broker sends is lost",
    what="A leader hears the other nodes, and they do not hear it. Others take over.",
    course=cut_off_one_way,
    expectations=Expectations(
        write_outage_ms=_SILENCE_MS, recovery_ms=30_000, elections=1, isr_least=2
    ),
    needs=frozenset({Need.CUTS}),
)

SLOW: Final = Drill(
    name="slow-network",
    title="The network of a leader is slow",
    what="What reaches a leader, and what it answers, takes a quarter of a second longer.",
    course=slow_network,
    expectations=Expectations(write_outage_ms=3_000, recovery_ms=15_000, elections_most=0),
    control=Control(
        what="each direction takes six seconds longer",
        breaks="outage of writes",
        course=very_slow_network,
    ),
    needs=frozenset({Need.SLOW_NETWORK}),
)

DRILLS: Final = (FROM_CONTROLLERS, FROM_BROKERS, ONE_WAY, SLOW)
