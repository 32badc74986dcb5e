"""Planted bugs: the recorded seeds catch them, and the true source survives these seeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.sim.runs.mutants.catalogue import MUTANTS
from chaos.sim.runs.mutants.harness import (
    ROOT,
    SHORT_S,
    Catch,
    Hunters,
    Verdict,
    faults_for,
    hunt,
    hunting,
    record,
    recorded,
    shorten,
)
from chaos.sim.runs.mutants.mutant import Edit, Mutant, MutantError
from chaos.sim.runs.mutants.planting import changes, edited
from chaos.sim.runs.swarm import Outcome, Plan, run, silent
from chaos.sim.work.load import LoadKind

pytestmark = pytest.mark.apart

RECORDED = recorded()
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
LONGEST_S = 10.0  # those whose run costs more are left to scripts/sim --mutants
QUICK = sorted(
    name for name, catch in RECORDED.items() if name in BY_NAME and catch.cpu_s <= LONGEST_S
)
# If a change of the source has changed the run of the recorded seed.
FALLBACK_SEEDS, FALLBACK_SECONDS = range(16), 30.0


@pytest.fixture(scope="session")
def hunters() -> Iterator[Hunters]:
    """Of all tests in this process: it imports the source once."""
    with hunting() as hunters:
        yield hunters


def test_every_planted_bug_still_has_its_place() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 45
    for mutant in MUTANTS:
        changed = {Path(old.co_filename) for old, _ in changes(mutant, ROOT)}
        assert changed == {ROOT / edit.path for edit in mutant.edits}, mutant.name


def test_every_planted_bug_was_caught_when_they_were_last_hunted() -> None:
    assert sorted(RECORDED) == sorted(BY_NAME), "scripts/sim --mutants --record"


def test_a_planted_bug_whose_place_is_gone_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    x = 1\n    x = 1\n\ny = 1\n")
    for function, old in (("f", "y = 1"), ("f", "x = 1"), ("g", "x = 1")):
        with pytest.raises(MutantError, match="not once but"):
            list(edited(Mutant("m", (Edit("a.py", function, old, "z"),)), tmp_path))


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_caught(name: str, hunters: Hunters) -> None:
    mutant, catch = BY_NAME[name], RECORDED[name]
    if hunt(hunters, mutant, [catch.seed], seconds=catch.seconds).caught:
        return
    verdict = hunt(hunters, mutant, FALLBACK_SEEDS, seconds=FALLBACK_SECONDS)
    assert verdict.caught, (
        f"seed {catch.seed} caught it once, and now none of {FALLBACK_SEEDS} does: hunt it with "
        f"scripts/sim --mutants --record --only {name!r}"
    )


def catching_plan(name: str) -> tuple[int, float, tuple[str, ...], LoadKind]:
    catch, mutant = RECORDED[name], BY_NAME[name]
    return catch.seed, catch.seconds, faults_for(mutant), mutant.load


@pytest.mark.parametrize(
    ("seed", "seconds", "faults", "load"), sorted({catching_plan(name) for name in QUICK})
)
def test_the_true_source_survives_what_catches_planted_bugs(
    seed: int, seconds: float, faults: tuple[str, ...], load: LoadKind
) -> None:
    with silent():
        outcome = run(Plan(seed, seconds, faults, load=load))
    assert outcome.ok, outcome.violations


def test_a_catch_is_made_shorter_if_its_seed_still_catches_the_bug(hunters: Hunters) -> None:
    name = "raft: commit without a majority"
    verdict = hunt(hunters, BY_NAME[name], [RECORDED[name].seed], seconds=SHORT_S + 2)
    shorten(hunters, verdict)
    assert verdict.caught_by is not None
    assert verdict.caught_by.plan.seconds == SHORT_S
    long = Outcome(Plan(RECORDED[name].seed, 30.0))
    harmless = Verdict(Mutant("nothing", ()), 1, long)
    shorten(hunters, harmless)
    assert harmless.caught_by is long


def test_the_record_keeps_those_that_were_not_hunted(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    one, other = (Mutant(name, ()) for name in ("one", "other"))
    caught = Outcome(Plan(7, 30.0), cpu_s=1.26)
    record([Verdict(one, 3, caught), Verdict(other, 1, caught)], file)
    record([Verdict(one, 9)], file)  # not caught any more
    assert recorded(file) == {"other": Catch(7, 30.0, 1.3)}
    assert recorded(tmp_path / "none.json") == {}
