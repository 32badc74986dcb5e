"""Planting bugs in running processes."""

import importlib.util
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from chaos.sim.runs.mutants.catalogue import MUTANTS
from chaos.sim.runs.mutants.forks import Forks
from chaos.sim.runs.mutants.harness import (
    ROOT,
    Hunters,
    faults_for,
    hunt,
    hunting,
    outcomes,
    source_tree,
    worker,
)
from chaos.sim.runs.mutants.mutant import Edit, Mutant, MutantError
from chaos.sim.runs.mutants.planting import Functions, plant
from chaos.sim.runs.swarm import Plan
from chaos.sim.work.load import LoadKind

SOURCE = """
import functools

def doubling(function):
    @functools.wraps(function)
    def double():
        return 2 * function()
    return double

@doubling
def three():
    return 3

class Log:
    SIZE = 5

    @property
    def end(self):
        def of(value):
            return value + 1
        return of(self.SIZE)

held = Log.end.fget
"""
QUICK = Plan(0, 1.0, ("kill",), load=LoadKind.LIGHT)


def imported(directory: Path) -> ModuleType:
    file = directory / "planted_here.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("planted_here", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bug(function: str, old: str, new: str) -> Mutant:
    return Mutant("m", (Edit("planted_here.py", function, old, new),))


def test_everything_that_holds_a_function_runs_its_bugs(tmp_path: Path) -> None:
    module = imported(tmp_path)
    functions = Functions({str(tmp_path / "planted_here.py")})
    log = module.Log()
    assert (module.three(), log.end, module.held(log)) == (6, 6, 6)
    plant(bug("three", "3", "4"), tmp_path, functions)
    plant(bug("Log.end.of", "value + 1", "value + 2"), tmp_path, functions)
    assert (module.three(), log.end, module.held(log)) == (8, 7, 7)


def test_a_bug_that_would_not_take_effect_is_an_error(tmp_path: Path) -> None:
    imported(tmp_path)
    functions = Functions({str(tmp_path / "planted_here.py")})
    for mutant, why in (
        (bug("", "SIZE = 5", "SIZE = 6"), "it changes more than functions"),
        (bug("", "held = Log.end.fget", "def more():\n    pass"), "it changes more than functions"),
        (bug("doubling", "2", "3"), "doubling has made functions at the import"),
        (bug("doubling", "4", "5"), "not once but 0 times"),
    ):
        with pytest.raises(MutantError, match=why):
            plant(mutant, tmp_path, functions)
    with pytest.raises(MutantError, match="three was not imported"):
        plant(bug("three", "3", "4"), tmp_path, Functions(set()))


@pytest.fixture(scope="module")
def hunters() -> Iterator[Hunters]:
    with hunting() as hunters:
        yield hunters


def test_a_fork_runs_what_a_process_runs_that_has_read_the_bug(hunters: Hunters) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == "raft: vote for a worse log"]
    order = Plan(0, 8.0, faults_for(mutant), load=mutant.load, hasty=True)
    with source_tree(mutant) as root:
        (read,) = outcomes(worker(root, [1], order))
    (planted,) = hunters.run(mutant, [1], order)
    assert not read.ok
    assert replace(planted, cpu_s=0.0, real_s=0.0) == replace(read, cpu_s=0.0, real_s=0.0)


def test_forks_run_one_bug_after_another_up_to_the_first_catch(hunters: Hunters) -> None:
    (commit,) = [each for each in MUTANTS if each.name == "raft: commit without a majority"]
    true = list(hunters.run(Mutant("none", ()), [4, 5], QUICK))
    caught = list(hunters.run(commit, range(9), replace(QUICK, hasty=True)))
    again = list(hunters.run(Mutant("none", ()), [5], QUICK))
    assert [each.plan.seed for each in true] == [4, 5]
    assert all(each.ok for each in true)
    assert [each.ok for each in caught] == [True] * (len(caught) - 1) + [False]
    assert again[0].digest == true[1].digest


def test_a_bug_that_cannot_be_planted_is_an_error(hunters: Hunters) -> None:
    lost = Mutant("lost", (Edit("raft/core.py", "RaftCore.step", "no_such_code()", ""),))
    with pytest.raises(MutantError, match=r"lost: raft/core\.py: not once but 0 times"):
        hunt(hunters, lost, [0], seconds=1.0)
    ended = Hunters(ROOT)
    ended.end()
    with pytest.raises(MutantError, match="the hunt was ended"):
        list(ended.run(Mutant("none", ()), [5], QUICK))


def test_a_fork_that_dies_is_an_error(hunters: Hunters) -> None:
    began = "started = time.perf_counter()"
    edit = Edit("chaos/sim/runs/swarm.py", "_Run.run", began, "import os\nos.abort()")
    dies = Mutant("dies", (edit,))
    with pytest.raises(RuntimeError, match=f"status -{signal.SIGABRT:d}"):
        hunt(hunters, dies, [0], seconds=1.0)


def test_ended_forks_leave_no_run_behind() -> None:
    forks = Forks(ROOT)
    running = forks.run(Mutant("none", ()), range(1000), QUICK)
    assert next(running).ok
    forks.end()
    with pytest.raises(RuntimeError, match="the process that forks for 'none' has ended"):
        list(running)
    with pytest.raises(RuntimeError, match="has ended"):
        list(forks.run(Mutant("none", ()), [1], QUICK))
    forks.end()
    forks.close()
