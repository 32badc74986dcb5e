"""Seeded runs of three and five cores among crashes, partitions and a bad network."""

from __future__ import annotations

from collections import Counter

import pytest

from raft.messages import Batch
from tests.support.raft_simulation import Simulation

SEEDS_PER_TEST = 12


def run(seed: int, voters: int, observers: int) -> Simulation:
    simulation = Simulation(seed, voters, observers)
    simulation.start_all()
    simulation.keep_proposing()
    simulation.run_for(2.0)
    simulation.unkind()
    simulation.run_for(20.0)
    simulation.heal()
    simulation.run_for(8.0)
    return simulation


def histories(simulation: Simulation) -> list[list[Batch]]:
    return [node.history for node in simulation.nodes.values()]


def check_recovered(simulation: Simulation) -> None:
    """Once the faults are over there is one leader, and all follow it closely."""
    status = {node.id: node.running.status for node in simulation.nodes.values()}
    leaders = simulation.leaders()
    assert len(leaders) == 1, f"seed {simulation.seed}: {status}"
    leader = leaders[0]
    for node in simulation.nodes.values():
        assert node.running.status.leader_id == leader.id, f"seed {simulation.seed}: {status}"
        assert node.running.high_watermark > leader.running.log.end_offset - 20
    assert simulation.counts["commits"] > 100, simulation.counts


@pytest.mark.parametrize(("voters", "observers"), [(3, 1), (5, 0)])
def test_faults(voters: int, observers: int) -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS_PER_TEST):
        simulation = run(seed, voters, observers)
        check_recovered(simulation)
        total += simulation.counts
    for happened in (
        "commits",
        "crashes",
        "epochs",
        "installs",
        "partitions",
        "prospective",
        "resigned",
        "snapshots",
        "truncations",
    ):
        assert total[happened] >= SEEDS_PER_TEST // 2, f"{happened}: {total}"


def test_a_lone_voter_elects_itself() -> None:
    simulation = Simulation(1, 1)
    simulation.start_all()
    simulation.keep_proposing()
    simulation.run_for(3.0)
    assert simulation.counts["epochs"] == 1
    assert simulation.counts["commits"] > 10


def test_same_seed_same_run() -> None:
    first, second = run(7, 3, 1), run(7, 3, 1)
    assert first.counts == second.counts
    assert histories(first) == histories(second)
