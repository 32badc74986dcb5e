"""The drill on share groups: a queue with workers, and everything that takes part is killed."""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.drills.drill import SHORT_TIMES, Control, Drill
from chaos.drills.history import Expectations
from chaos.drills.queue.crew import WORKERS, Crew, How
from chaos.drills.stage import Stage
from chaos.drills.workload import Load

_DELIVERY_LIMIT: Final = 3
_LOCK_MS: Final = 2_000
_FLOWS_S: Final = 60.0
_DRAIN_S: Final = 120.0
_VICTIMS: Final = ("worker", "worker", "worker", "leader")
_AWAY_S: Final = (0.2, 2.0)
"""How long a killed process is away, and how long nothing is killed after it is back."""


async def queue(stage: Stage) -> None:
    await _queue(stage, "careful")


async def accepted_first(stage: Stage) -> None:
    """A worker that is killed loses what it has accepted and not processed."""
    await _queue(stage, "hasty")


async def _queue(stage: Stage, how: How) -> None:
    crew = await stage.start_crew(how)

    async def flows() -> bool:
        return crew.deliveries > 0

    await stage.until(flows, "workers get records", _FLOWS_S)
    await stage.steady()
    loop = asyncio.get_running_loop()
    until = loop.time() + stage.seconds
    turn: list[str] = []
    while loop.time() < until:
        # Each kind of victim once, in another order, and then each again.
        turn = turn or stage.rng.sample(_VICTIMS, len(_VICTIMS))
        await _kill_one(stage, crew, turn.pop())
        await stage.hold(stage.rng.uniform(*_AWAY_S))
    await stage.whole()
    stage.end_writing()
    await stage.crew_is_done(crew, _DRAIN_S)
    await crew.stop()


async def _kill_one(stage: Stage, crew: Crew, victim: str) -> None:
    away_s = stage.rng.uniform(*_AWAY_S)
    if victim == "worker":
        number = stage.rng.randint(1, WORKERS)
        stage.step("fault", f"kill -9 worker {number}")
        await crew.kill_worker(number)
        await stage.hold(away_s)
        stage.step("heal", f"start worker {number}")
        await crew.start_worker(number)
    else:
        broker = await stage.leader_of(stage.rng.randrange(stage.partitions))
        await stage.kill(broker)
        await stage.hold(away_s)
        await stage.start(broker)
        # With another broker away at once, too few replicas would be left.
        await stage.replicated()


QUEUE: Final = Drill(
    name="queue",
    title="A queue with ten workers, and workers and brokers are killed",
    what="A share group processes the topic, with poison in it; workers and leaders are killed.",
    course=queue,
    expectations=Expectations(delivery_limit=_DELIVERY_LIMIT, elections=1, recovery_ms=60_000),
    control=Control(
        what="the workers accept records before they process them",
        breaks="every acknowledged record was processed",
        course=accepted_first,
    ),
    load=Load(per_s=50),
    settings={
        **SHORT_TIMES,
        "group.share.delivery.count.limit": str(_DELIVERY_LIMIT),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(_LOCK_MS),
    },
)

DRILLS: Final = (QUEUE,)
