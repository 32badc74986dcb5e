"""Many runs in several processes, and their results on disk."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.sim.faults.registry import KINDS
from chaos.sim.laws.durable_starts import DurableStartsAreDurable
from chaos.sim.laws.law import Proof
from chaos.sim.laws.lost_directories import OfflineReplicasLeadNothing
from chaos.sim.laws.registry import LAWS
from chaos.sim.laws.votes import OneVotePerEpoch
from chaos.sim.runs.campaign import (
    ENOUGH_SEEDS,
    CampaignError,
    Results,
    Summary,
    _blocks,
    run_seeds,
    source_digest,
)
from chaos.sim.runs.mutants.harness import source_tree
from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.runs.swarm import Plan, RunOutcome
from chaos.sim.work.load import LoadKind

ORDER = Plan(0, seconds=1.0, faults=("kill",), load=LoadKind.LIGHT)

WORKER = "chaos/sim/runs/worker.py"
RUN = "outcome = run(replace(order, seed=seed))"
DIE = "if seed == 1:\n    import os\n    os.kill(os.getpid(), 9)"
DIES_AT_ONE = Mutant("dies at seed 1", (Edit(WORKER, "main", RUN, f"{DIE}\n{RUN}"),))
CANNOT_RUN = Mutant("cannot run", (Edit(WORKER, "", "import gc", "import gcc"),))


def comparable(outcome: RunOutcome) -> RunOutcome:
    return replace(outcome, real_s=0.0, cpu_s=0.0)


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_blocks_are_the_seeds_in_order(jobs: int) -> None:
    for seeds in ([], [3], list(range(500)), [0, 1, 2, 9, 10, 40], list(range(0, 60, 2))):
        blocks = list(_blocks(seeds, jobs))
        assert [seed for block in blocks for seed in block] == seeds
        assert all(1 <= len(block) <= 50 for block in blocks)
    assert len(list(_blocks(range(100), jobs))) >= jobs


def test_outcomes_are_the_same_however_many_processes_there_are() -> None:
    with source_tree() as root:
        alone = [comparable(each) for each in run_seeds(root, ORDER, range(3), 1)]
        shared = [comparable(each) for each in run_seeds(root, ORDER, range(3), 2)]
    assert [each.plan for each in alone] == [replace(ORDER, seed=seed) for seed in range(3)]
    assert all(each.ok for each in alone)
    assert sorted(shared, key=lambda each: each.plan.seed) == alone


def test_a_seed_whose_process_dies_has_failed_and_the_others_go_on() -> None:
    with source_tree(DIES_AT_ONE) as root:
        found = list(run_seeds(root, ORDER, range(3), 1))
    assert sorted(each.plan.seed for each in found) == list(range(3))
    (failed,) = [each for each in found if not each.ok]
    assert failed.plan == replace(ORDER, seed=1)
    assert failed.violations == ["its process was ended by signal 9"]


def test_a_source_that_cannot_be_run_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with source_tree(CANNOT_RUN) as root, pytest.raises(CampaignError, match="ended with status 1"):
        list(run_seeds(root, ORDER, range(2), 2))
    assert "No module named 'gcc'" in capfd.readouterr().err


def test_results_survive_a_break_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "new" / "results.jsonl"
    results = Results(file, ORDER, "source")
    assert results.open(resume=True) == []
    first = RunOutcome(replace(ORDER, seed=4), coverage={"acknowledged": 3}, virtual_s=2.0)
    results.add(first)
    results.close()
    file.write_text(file.read_text() + '{"source": "sour')
    again = Results(file, ORDER, "source")
    assert again.open(resume=True) == [first]
    second = RunOutcome(replace(ORDER, seed=5), violations=["x"], coverage={"acknowledged": 4})
    again.add(second)
    again.close()
    with closing(Results(file, ORDER, "source")) as third:
        found = third.open(resume=True)
    assert found == [first, second]
    rows = Summary.of(found).rows()
    assert (rows["seeds"], rows["failed"], rows["acknowledged"]) == (2, 1, 7)
    with closing(Results(file, ORDER, "source")) as anew:
        assert anew.open(resume=False) == []
    assert file.read_text() == ""


def test_an_interrupted_campaign_counts_what_the_file_holds(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    results = Results(file, ORDER, "source")
    results.open(resume=False)
    results.add(RunOutcome(replace(ORDER, seed=4)))  # a signal comes right after that
    assert [each.plan.seed for each in results.held()] == [4]
    with closing(Results(file, ORDER, "source")) as again:
        assert again.open(resume=True) == results.held()


@pytest.mark.parametrize(
    "other", [(replace(ORDER, load=LoadKind.DRAWN), "source"), (ORDER, "changed")]
)
def test_results_of_something_else_are_not_gone_on_with(
    other: tuple[Plan, str], tmp_path: Path
) -> None:
    results = Results(tmp_path / "r", *other)
    results.open(resume=False)
    results.add(RunOutcome(replace(other[0], seed=4)))
    results.close()
    with pytest.raises(CampaignError, match="begin anew"):
        Results(tmp_path / "r", ORDER, "source").open(resume=True)
    assert (tmp_path / "r").read_text() != ""


def test_another_source_has_another_digest() -> None:
    with source_tree() as root, source_tree(CANNOT_RUN) as changed:
        assert source_digest(root) != source_digest(changed)


def test_many_runs_that_never_saw_what_they_should_prove_little() -> None:
    seen = dict.fromkeys(("acknowledged", "compared", "consumed", "elections"), 7)
    looks = {law.name: int(law.proof is Proof.RUN) for law in LAWS}
    few = Summary(ENOUGH_SEEDS - 1, 0, 1.0, 1.0, {}, {}, {})
    assert few.neglected(KINDS) == []
    many = Summary(ENOUGH_SEEDS, 0, 1.0, 1.0, seen, {"kill": 3}, looks)
    assert many.neglected(("kill", "conditions")) == []
    assert many.neglected(("kill", "wipe_disk")) == ["disks wiped"]
    assert {"truncations", "reassignments", "voters added"} <= set(many.neglected(KINDS))


def test_many_runs_in_which_a_law_looked_at_nothing_prove_little() -> None:
    looks = {law.name: int(law.proof is Proof.RUN) for law in LAWS}
    seen = dict.fromkeys(("acknowledged", "compared", "consumed", "elections", "kill"), 7)
    idle = "anything to look at: " + DurableStartsAreDurable.name
    many = Summary(ENOUGH_SEEDS, 0, 1.0, 1.0, seen, {}, looks)
    assert idle in many.neglected(KINDS)
    assert many.neglected(("kill",)) == []  # it needs all kinds of faults
    assert idle not in replace(many, looks=dict.fromkeys(looks, 1)).neglected(KINDS)
    offline = "anything to look at: " + OfflineReplicasLeadNothing.name
    assert offline not in many.neglected(KINDS), "other loads have nothing of the kind"
    assert offline in replace(many, is_rare=True).neglected(KINDS)
    never = replace(many, looks={**looks, OneVotePerEpoch.name: 0})
    assert never.neglected(("kill",)) == ["anything to look at: one vote per epoch"]


def test_looks_of_all_runs_are_summed_up_and_laws_without_any_are_listed() -> None:
    outcomes = [RunOutcome(replace(ORDER, seed=n), looks={OneVotePerEpoch.name: n}) for n in (3, 4)]
    rows = Summary.of(outcomes).laws()
    assert len(rows) == len(LAWS)
    assert (OneVotePerEpoch.name, 7, "each run") in rows
    assert (DurableStartsAreDurable.name, 0, "many runs with all faults") in rows
