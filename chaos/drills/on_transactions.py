"""The drill on transactions: a chain of two hops, and everything that takes part is killed."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from chaos.drills.chain.chain import Chain
from chaos.drills.chain.records import HOPS
from chaos.drills.drill import Control, Drill
from chaos.drills.history import Expectations
from chaos.drills.stage import Stage

DRAIN_S: Final = 180.0
_FLOWS_S: Final = 60.0
_QUIET_S: Final = 90.0
"""More than it takes a client to begin anew after its transaction hung until its time-out."""
_AWAY_S: Final = (0.5, 3.0)
"""How long a killed broker or client is away, and how long nothing is killed after it is back."""
_CLIENTS: Final = ("hop", "source")
_BROKERS: Final = ("leader", "transaction coordinator", "group coordinator")


async def exactly_once(stage: Stage) -> None:
    await _chain(stage, "inside", (*_CLIENTS, *_BROKERS))


async def offsets_outside(stage: Stage) -> None:
    """Clients alone are enough: a hop that is killed between the two commits loses what it read."""
    await _chain(stage, "outside", ("hop",))


async def _chain(
    stage: Stage, offsets: Literal["inside", "outside"], victims: tuple[str, ...]
) -> None:
    chain = await stage.start_chain(offsets)

    async def flows() -> bool:
        return chain.came_out > 0

    async def is_drained() -> bool:
        """Or nothing has come out for so long that nothing will. The laws say what is missing."""
        return chain.is_drained or chain.quiet_s > _QUIET_S

    await stage.until(flows, "records come out of the chain", _FLOWS_S)
    await stage.steady()
    loop = asyncio.get_running_loop()
    until = loop.time() + chain.options.seconds
    turn: list[str] = []
    while loop.time() < until:
        # Each kind of victim once, in another order, and then each again.
        turn = turn or stage.rng.sample(victims, len(victims))
        await _kill_one(stage, chain, turn.pop())
        await stage.hold(stage.rng.uniform(*_AWAY_S))
    await stage.whole()
    await chain.stop_source()
    stage.step("note", "the source has ended")
    stage.end_writing()
    try:
        await stage.until(is_drained, "all records are out of the chain", DRAIN_S)
    finally:
        await chain.stop()


async def _kill_one(stage: Stage, chain: Chain, victim: str) -> None:
    rng = stage.rng
    away_s = rng.uniform(*_AWAY_S)
    hop = rng.randint(1, HOPS)
    if victim == "source":
        stage.step("fault", "kill -9 the source of the chain")
        await chain.kill_source()
        await stage.hold(away_s)
        stage.step("heal", "start another source")
        await chain.start_source()
    elif victim == "hop":
        stage.step("fault", f"kill -9 hop {hop}")
        await chain.kill_hop(hop)
        await stage.hold(away_s)
        stage.step("heal", f"start hop {hop}")
        await chain.start_hop(hop)
    else:
        broker = await stage.broker_of_chain(victim, hop)
        stage.step("note", f"broker {broker} is a {victim} of the chain")
        await stage.kill(broker)
        await stage.hold(away_s)
        await stage.start(broker)
        # With another broker away at once, too few replicas would be left.
        await stage.chain_is_replicated()


EXACTLY_ONCE_CHAIN: Final = Drill(
    name="exactly-once-chain",
    title="A chain of transactions, and everything in it is killed",
    what="Two hops consume, transform and produce; clients, leaders and coordinators are killed.",
    course=exactly_once,
    expectations=Expectations(chain=True, drain_ms=DRAIN_S * 1000, elections=1, recovery_ms=60_000),
    control=Control(
        what="the hops commit their offsets outside of the transactions",
        breaks="every acknowledged record came out of the chain",
        course=offsets_outside,
    ),
)

DRILLS: Final = (EXACTLY_ONCE_CHAIN,)
