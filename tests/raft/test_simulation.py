"""Seeded runs of three and five cores among crashes, partitions and a bad network."""

from __future__ import annotations

from collections import Counter

import pytest

from raft.messages import Batch
from raft.ready import Role
from tests.support.raft_simulation import Simulation
from tests.support.raft_voters import Operator

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


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_leader_is_elected_though_a_sync_outlasts_an_election_timeout(voters: int) -> None:
    """Election timeouts are 1 to 2 s, and a follower suspects a silent leader after 2 s."""
    for seed in range(SEEDS_PER_TEST):
        simulation = Simulation(seed, voters)
        simulation.slow_syncs_s = 1.1, 1.7
        simulation.start_all()
        simulation.run_for(30.0)
        (leader,) = simulation.leaders()
        epoch = leader.running.epoch
        assert epoch < 10, f"seed {seed}"
        simulation.run_for(30.0)
        assert simulation.leaders() == [leader], f"seed {seed}"
        assert leader.running.epoch == epoch, f"seed {seed}"


def histories(simulation: Simulation) -> list[list[Batch]]:
    return [node.history for node in simulation.nodes.values()]


def check_recovered(simulation: Simulation) -> None:
    """Check that after the faults there is one leader, and all replicas follow it closely."""
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


def change_voters(seed: int) -> tuple[Simulation, Counter[str]]:
    """Seven nodes, one to five of them voters. An operator changes the voters among the faults."""
    simulation = Simulation(seed, seed % 3 + 1, 6 - seed % 3)
    operator = Operator(simulation)
    simulation.start_all()
    simulation.keep_proposing()
    simulation.run_for(2.0)
    simulation.unkind()
    operator.begin()
    simulation.run_for(20.0)
    simulation.heal()
    simulation.run_for(4.0)
    operator.active = False
    simulation.run_for(8.0)
    return simulation, operator.committed()


def test_voters_change_among_faults() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS_PER_TEST):
        simulation, committed = change_voters(seed)
        check_recovered(simulation)
        voters = simulation.leaders()[0].running.voters
        for node in simulation.nodes.values():
            is_voter = node.running.status.role in (Role.LEADER, Role.FOLLOWER)
            assert is_voter == (node.key in voters), f"seed {seed}: node {node.id} of {voters}"
        total += simulation.counts + committed
    for happened, least in (
        ("added", 40),
        ("removed", 40),
        ("refused DUPLICATE_VOTER", 1),
        ("learned", 5),
        ("moved", 20),
        ("wiped", 20),
        ("crashes", 20),
        ("installs", 20),
        ("truncations", 5),
        ("epochs", 40),
    ):
        assert total[happened] >= least, f"{happened}: {total}"


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
