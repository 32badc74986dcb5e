"""Runs of the swarm."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from chaos.sim.faults.registry import KINDS
from chaos.sim.laws.directories import DirectoriesFailWithTheirDevice
from chaos.sim.runs.mutants.harness import outcomes, source_tree, worker
from chaos.sim.runs.shrink import shortest
from chaos.sim.runs.swarm import Plan, RunOutcome, parse_faults, run, silent
from chaos.sim.work.load import LoadKind
from chaos.sim.work.rare import RareLoad


def quiet_run(plan: Plan) -> RunOutcome:
    with silent():
        return run(plan)


@pytest.mark.parametrize("seed", range(4))
def test_a_run_from_a_seed_breaks_no_law(seed: int) -> None:
    outcome = quiet_run(Plan(seed, seconds=15))
    assert outcome.ok, outcome.violations
    assert outcome.coverage["compared"] > 50
    assert outcome.coverage["linearizable reads"] > 10
    assert outcome.acts > 0


def test_a_quiet_cluster_under_light_load_has_one_leader_throughout() -> None:
    outcome = quiet_run(Plan(0, seconds=15, faults=(), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    assert outcome.acts == 0
    assert outcome.coverage["elections"] == 1
    assert outcome.coverage["acknowledged"] >= 15 * 5 * 4


def test_a_seed_gives_the_same_outcome_in_any_process() -> None:
    here = quiet_run(Plan(5, seconds=8))
    assert quiet_run(Plan(5, seconds=8)).digest == here.digest
    other = subprocess.run(
        [sys.executable, "-m", "chaos.sim.runs.worker", "5", Plan(0, seconds=8).to_json()],
        env={"PYTHONHASHSEED": "3"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    there = RunOutcome.from_json(other)
    assert there.digest == here.digest
    assert there.coverage == here.coverage
    assert quiet_run(Plan(6, seconds=8)).digest != here.digest


def test_haste_changes_nothing_until_something_is_violated() -> None:
    plan = Plan(1, seconds=8)
    assert quiet_run(replace(plan, hasty=True)).coverage == quiet_run(plan).coverage


def test_fewer_acts_are_the_beginning_of_the_same_storm() -> None:
    whole = quiet_run(Plan(3, seconds=8))
    part = quiet_run(Plan(3, seconds=8, acts=3))
    assert whole.acts > 3
    assert part.acts == 3
    assert part.ok, part.violations


def test_a_run_in_which_nothing_is_acknowledged_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.sim.work.workload.Workload.start", lambda _: None)
    outcome = quiet_run(Plan(0, seconds=5, acts=0))
    assert any("consumers and readers go on" in text for text in outcome.violations)


def test_a_run_in_which_a_law_looks_at_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectoriesFailWithTheirDevice, "look", lambda *_: None)
    outcome = quiet_run(Plan(0, seconds=5, faults=(), load=LoadKind.LIGHT))
    assert outcome.violations == [
        "vacuous: nothing was looked at: directories fail with their device"
    ]


def test_an_error_without_words_says_where_it_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.sim.runs.swarm.HEAL_S", 0.0)
    outcome = quiet_run(Plan(0, seconds=5, faults=(), load=LoadKind.LIGHT))
    assert any(
        re.fullmatch(r"TimeoutError: raised in \w+\.py, line \d+", text)
        for text in outcome.violations
    ), outcome.violations


def test_an_unchanged_copy_of_the_source_gives_what_the_source_gives() -> None:
    with source_tree() as root:
        (outcome,) = outcomes(worker(root, [5], Plan(0, seconds=8)))
    assert outcome.digest == quiet_run(Plan(5, seconds=8)).digest


def test_a_failure_is_shortened_to_the_act_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(plan: Plan, *, keep_transcript: bool = False) -> RunOutcome:
        acts = 20 if plan.acts is None else plan.acts
        return RunOutcome(plan, violations=["bad"] if acts >= 7 else [], acts=acts)

    monkeypatch.setattr("chaos.sim.runs.shrink.run", fake)
    assert shortest(fake(Plan(1))).plan.acts == 7


def test_kinds_of_faults() -> None:
    assert parse_faults("all") == KINDS
    assert parse_faults("none") == ()
    assert parse_faults("kill,pause") == ("kill", "pause")
    with pytest.raises(ValueError, match="no kind of fault 'rain'"):
        parse_faults("kill,rain")


def test_an_outcome_survives_its_line_of_json() -> None:
    outcome = RunOutcome(Plan(3, faults=("kill",)), violations=["x"], coverage={"a": 1}, acts=2)
    line = outcome.to_json()
    assert "\n" not in line
    assert json.loads(line)["acts"] == 2
    assert RunOutcome.from_json(line) == outcome


@pytest.mark.parametrize("load", [LoadKind.LIGHT, LoadKind.DRAWN])
def test_only_rare_load_draws_rare_things(load: LoadKind, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(3, seconds=1.0, load=load)
    before = quiet_run(plan).digest
    monkeypatch.setattr(RareLoad, "draw", lambda _: pytest.fail("it was drawn"))
    assert quiet_run(plan).digest == before


def test_rare_load_is_light_load_and_more() -> None:
    outcome = quiet_run(Plan(5, seconds=8, load=LoadKind.RARE))
    assert outcome.ok, outcome.violations
    for what in ("handovers", "odd peers", "odd requests", "consumers sent to their rack"):
        assert outcome.coverage[what], what
