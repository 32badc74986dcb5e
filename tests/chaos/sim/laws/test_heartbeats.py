"""The law of heartbeats that only a leader acknowledges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from chaos.sim.laws.heartbeats import LeadersAcknowledgeHeartbeats
from chaos.sim.laws.quorum_leaders import OneLeaderPerQuorumEpoch
from raft.api import LeaderAndEpoch
from raft.ready import Role
from tests.support.law_bench import LawBench


class Run:
    """Controllers that lead one after the other, and broker 1, which sends heartbeats."""

    def __init__(self) -> None:
        self.bench = LawBench()
        self.leaders = OneLeaderPerQuorumEpoch(self.bench.scene)
        self.bench.scene.add(self.leaders)
        self.law = LeadersAcknowledgeHeartbeats(self.bench.scene)

    def elect(self, node_id: int, epoch: int) -> None:
        core = self.bench.core(node_id)
        core.role, core.epoch = Role.LEADER, epoch
        self.bench.controllers[node_id].node.quorum.status = core.status
        self.bench.scene.look_at_nodes([self.bench.sim_node(node_id)])
        assert not self.bench.broken(self.leaders)

    def acknowledged(self, by: int, *, ago_s: float) -> list[str]:
        """What is reported when broker 1 has heard an answer to a heartbeat of that time."""
        self.bench.brokers[1].node.broker = SimpleNamespace(
            has_begun=True, acknowledged_ago_s=ago_s, heartbeats_to=LeaderAndEpoch(by, 1)
        )
        self.bench.scene.look_at_nodes([self.bench.sim_node(1)])
        return self.bench.broken(self.law)


Scenario = Callable[[Run], Coroutine[Any, Any, None]]


def simulated(scenario: Scenario) -> Callable[[], None]:
    def test() -> None:
        run = Run()
        run.bench.simulation.run(scenario(run))

    return test


@simulated
async def test_a_deposed_controller_acknowledges_no_heartbeat(run: Run) -> None:
    run.elect(101, 1)
    await asyncio.sleep(2.0)
    assert not run.acknowledged(101, ago_s=0.0)
    run.elect(102, 2)
    await asyncio.sleep(1.0)
    (report,) = run.acknowledged(101, ago_s=0.9)
    assert report == (
        "controller 101 acknowledged a heartbeat that broker 1 sent at 2.100, and another one was "
        "elected at 2.000"
    )
    assert run.law.looked == 2


@simulated
async def test_an_answer_may_come_after_the_next_election(run: Run) -> None:
    run.elect(101, 1)
    await asyncio.sleep(2.0)
    run.elect(102, 2)
    await asyncio.sleep(1.0)
    assert not run.acknowledged(101, ago_s=1.1)
    assert run.law.looked == 1


@simulated
async def test_a_controller_that_leads_again_acknowledges(run: Run) -> None:
    for epoch, node_id in enumerate((101, 102, 101), 1):
        run.elect(node_id, epoch)
        await asyncio.sleep(1.0)
    assert not run.acknowledged(101, ago_s=0.5)


@simulated
async def test_an_answer_is_judged_once(run: Run) -> None:
    run.elect(101, 1)
    assert not run.acknowledged(101, ago_s=0.0)
    run.elect(102, 2)
    await asyncio.sleep(1.0)
    assert not run.acknowledged(101, ago_s=1.0)
    assert run.law.looked == 1
