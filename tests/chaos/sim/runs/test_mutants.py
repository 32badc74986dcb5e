"""Planted bugs: the recorded seeds catch them, and the true source survives these seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.sim.runs.mutants.catalogue import MUTANTS
from chaos.sim.runs.mutants.harness import (
    OTHERS_MAX,
    ROOT,
    SHORT_S,
    Catch,
    Hunters,
    Verdict,
    check_true_source,
    faults_for,
    hunt,
    hunt_again,
    hunting,
    record,
    recorded,
    runs_of_others,
    shorten,
)
from chaos.sim.runs.mutants.mutant import Edit, Mutant, MutantError
from chaos.sim.runs.mutants.planting import changes, edited
from chaos.sim.runs.swarm import Plan, RunOutcome, run, silent
from chaos.sim.work.load import LoadKind

pytestmark = pytest.mark.apart

RECORDED = recorded()
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
LONGEST_S = 3.0  # scripts/sim --mutants runs the costlier ones
QUICK = sorted(
    name for name, catch in RECORDED.items() if name in BY_NAME and catch.cpu_s <= LONGEST_S
)
# If a change of the source has changed the run of the recorded seed.
FALLBACK_SEEDS, FALLBACK_SECONDS = range(16), (SHORT_S, 30.0)


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
    assert hunt_again(hunters, mutant, catch).caught or any(
        hunt(hunters, mutant, FALLBACK_SEEDS, seconds=seconds).caught
        for seconds in FALLBACK_SECONDS
    ), (
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
    long = RunOutcome(Plan(RECORDED[name].seed, 30.0))
    harmless = Verdict(Mutant("nothing", ()), 1, long)
    shorten(hunters, harmless)
    assert harmless.caught_by is long


def test_a_run_that_is_bad_without_the_bug_is_no_catch(tmp_path: Path) -> None:
    mutant = BY_NAME["raft: commit without a majority"]
    path = tmp_path / "record.json"
    record([Verdict(mutant, 1, RunOutcome(Plan(2, 8.0), cpu_s=1.0))], path)
    before = path.read_text()
    bad = Verdict(mutant, 1, RunOutcome(Plan(3, 8.0, faults_for(mutant)), violations=["x"]))
    good = Verdict(mutant, 1, RunOutcome(Plan(4, 8.0, faults_for(mutant)), violations=["x"]))
    assert [each.caught for each in (bad, good)] == [True, True]
    for each in (bad, good):
        check_true_source(CaughtAt(3, 5.0), each)
    assert [each.caught for each in (bad, good)] == [False, True]
    record([bad], path)
    assert path.read_text() == before


class CaughtAt(Hunters):
    """Stands for runs: the one with ``seed`` is caught at ``virtual_s``, if faults last so long."""

    def __init__(self, seed: int, virtual_s: float) -> None:
        super().__init__(ROOT)
        self.ran: list[tuple[list[int], float]] = []
        self._seed, self._virtual_s = seed, virtual_s

    def run(self, mutant: Mutant, seeds: Sequence[int], order: Plan) -> Iterator[RunOutcome]:
        self.ran.append(([*seeds], order.seconds))
        for seed in seeds:
            outcome = RunOutcome(replace(order, seed=seed), virtual_s=self._virtual_s)
            if seed == self._seed and order.seconds >= self._virtual_s:
                outcome.violations = ["caught"]
            yield outcome


@pytest.mark.parametrize(
    ("virtual_s", "tried", "found"),
    [(5.2, [8.0], 8.0), (12.3, [8.0, 13.0], 13.0), (29.7, [8.0], 30.0), (30.0, [8.0], 30.0)],
)
def test_a_catch_has_no_more_seconds_than_it_needs(
    virtual_s: float, tried: list[float], found: float
) -> None:
    fake = CaughtAt(3, virtual_s)
    verdict = hunt(fake, Mutant("m", ()), [3], seconds=30.0)
    fake.ran.clear()
    shorten(fake, verdict)
    assert fake.ran == [([3], seconds) for seconds in tried]
    assert verdict.caught_by is not None
    assert verdict.caught_by.plan == Plan(
        3, found, faults_for(verdict.mutant), load=LoadKind.DRAWN, hasty=True
    )


def test_what_is_hunted_again_is_the_run_that_is_recorded() -> None:
    fake = CaughtAt(3, 9.0)
    assert hunt_again(fake, Mutant("m", ()), Catch(3, 10.0, 1.0)).caught
    assert not hunt_again(fake, Mutant("m", ()), Catch(4, 10.0, 1.0)).caught
    assert not hunt_again(fake, Mutant("m", ()), None).caught
    assert fake.ran == [([3], 10.0), ([4], 10.0)]


def test_a_bug_is_hunted_with_the_runs_of_others_of_its_order() -> None:
    names = ("one", "two", "three", "alone", "new")
    drawn = [Mutant(name, ()) for name in names]
    light = Mutant("light", (), load=LoadKind.LIGHT)
    aimed = Mutant("aimed", (), aims=("diverge",))
    catches = dict.fromkeys(("one", "two", "three"), Catch(5, 8.0, 1.0))
    catches |= {"alone": Catch(2, 30.0, 1.0), "light": Catch(1, 8.0, 1.0)}
    catches |= {"aimed": Catch(1, 8.0, 1.0), "new": Catch(7, 8.0, 1.0)}
    mutants = [*drawn, light, aimed]
    assert runs_of_others(drawn[-1], mutants, catches) == [Catch(5, 8.0, 0.0), Catch(2, 30.0, 0.0)]
    assert runs_of_others(light, mutants, catches) == []
    many = [Mutant(str(number), ()) for number in range(OTHERS_MAX + 2)]
    found = runs_of_others(drawn[0], many, {each.name: Catch(3, 8.0, 1.0) for each in many})
    assert found == [Catch(3, 8.0, 0.0)]
    apart = {each.name: Catch(int(each.name), 8.0, 1.0) for each in many}
    assert [each.seed for each in runs_of_others(drawn[0], many, apart)] == [*range(OTHERS_MAX)]


def test_the_record_keeps_mutants_that_were_not_hunted(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    one, other = (Mutant(name, ()) for name in ("one", "other"))
    caught = RunOutcome(Plan(7, 30.0), cpu_s=1.26)
    record([Verdict(one, 3, caught), Verdict(other, 1, caught)], file)
    record([Verdict(one, 9)], file)  # not caught any more
    assert recorded(file) == {"other": Catch(7, 30.0, 1.3)}
    assert recorded(tmp_path / "none.json") == {}
