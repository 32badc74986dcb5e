"""Hunts planted bugs with the swarm, and records the seeds that have caught them."""

from __future__ import annotations

import ast
import json
import math
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from chaos.sim.faults.registry import AIMED_AT, KINDS
from chaos.sim.runs.mutants.forks import Forks, environment
from chaos.sim.runs.mutants.mutant import Mutant, MutantError
from chaos.sim.runs.mutants.planting import edited
from chaos.sim.runs.swarm import Plan, RunOutcome

ROOT = Path(__file__).parents[4]
ROOMS = (
    "broker",
    "chaos",
    "controller",
    "metadata",
    "node",
    "raft",
    "runtime",
    "security",
    "stele",
    "storage",
    "world",
)
RECORD = Path(__file__).with_name("record.json")
"""The first seed that caught each planted bug when it was last hunted, by the bug's name."""

SHORT_S = 8.0
"""Seconds of faults in which most bugs show, once their seed is known."""

OTHERS_MAX = 4
"""A bug is hunted with so many runs that have caught others, before it gets a run of its own."""


class Catch(NamedTuple):
    """The run that caught a bug: its seed and its seconds of faults."""

    seed: int
    seconds: float
    cpu_s: float  # what the run has cost


@dataclass(slots=True)
class Verdict:
    """The result of the hunt for one mutant."""

    mutant: Mutant
    seeds: int = 0  # seeds tried, including the one that caught it
    caught_by: RunOutcome | None = None
    real_s: float = 0.0  # how long the hunt took
    # The outcome of the same run of the true source, if that is bad, too. Then the run shows no
    # planted bug, but one of the source or of a law.
    true_source: RunOutcome | None = None

    @property
    def caught(self) -> bool:
        return self.caught_by is not None and self.true_source is None


@contextmanager
def source_tree(mutant: Mutant | None = None) -> Iterator[Path]:
    """A private copy of the source with the bug planted: edits of the original do not reach it."""
    with TemporaryDirectory(prefix="stele-sim-") as name:
        root = Path(name)
        for room in ROOMS:
            # With the compiled files: they are good for sources of the same time and size.
            shutil.copytree(ROOT / room, root / room)
        for file, tree in edited(mutant, root) if mutant is not None else ():
            file.write_text(ast.unparse(tree))
        yield root


def worker(
    root: Path, seeds: Sequence[int], order: Plan, *, own_session: bool = False
) -> subprocess.Popen[str]:
    """Start a process that runs ``order`` with each of the seeds on the source under ``root``. It
    prints a line of JSON for each outcome. ``own_session``: the terminal's Ctrl-C does not reach
    it."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "chaos.sim.runs.worker",
            ",".join(map(str, seeds)),
            order.to_json(),
        ],
        cwd=root,
        env=environment(root),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=own_session,
    )


class Hunters:
    """Runs planted bugs of the source under ``root`` for hunts in several threads, which can be
    ended together."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._idle: list[Forks] = []
        self._all: list[Forks] = []
        self._ended = False  # once True, no run starts any more

    def run(self, mutant: Mutant, seeds: Sequence[int], order: Plan) -> Iterator[RunOutcome]:
        """As ``Forks.run``. Raises MutantError once ended."""
        forks = self._take()
        yield from forks.run(mutant, seeds, order)
        self._idle.append(forks)

    def _take(self) -> Forks:
        with self._lock:
            if self._ended:
                raise MutantError("the hunt was ended")
            if self._idle:
                return self._idle.pop()
            self._all.append(Forks(self._root))
            return self._all[-1]

    def end(self) -> None:
        """Kill all running processes. Hunts that wait for outcomes fail. Idempotent."""
        with self._lock:
            self._ended = True
            for forks in self._all:
                forks.end()

    def close(self) -> None:
        """End them, when no hunt waits for outcomes any more."""
        self.end()
        for forks in self._all:
            forks.close()


@contextmanager
def hunting() -> Iterator[Hunters]:
    """Hunters on a private copy of the source. No process is left at the end."""
    with source_tree() as root:
        hunters = Hunters(root)
        try:
            yield hunters
        finally:
            hunters.close()


def outcomes(process: subprocess.Popen[str]) -> Iterator[RunOutcome]:
    """The outcomes as they come. Raises RuntimeError if the process fails. If the generator is
    closed early, it ends the process."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            yield RunOutcome.from_json(line)
        if process.wait() != 0:
            raise RuntimeError(f"a worker ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def faults_for(mutant: Mutant) -> tuple[str, ...]:
    """The kinds of faults in the runs that hunt for this mutant."""
    if not mutant.aims and not mutant.kinds:
        return KINDS
    return ("conditions", *mutant.kinds, *(AIMED_AT + name for name in mutant.aims))


def hunt_again(hunters: Hunters, mutant: Mutant, catch: Catch | None) -> Verdict:
    """The verdict of the run that caught the bug when it was last hunted, if any did."""
    if catch is None:
        return Verdict(mutant)
    return hunt(hunters, mutant, [catch.seed], seconds=catch.seconds)


def hunt(
    hunters: Hunters,
    mutant: Mutant,
    seeds: Sequence[int],
    *,
    seconds: float,
) -> Verdict:
    """Run seeds in order, with the bug planted, until one of them fails.

    Raises MutantError if the bug cannot be planted, and RuntimeError if a process dies.
    """
    verdict = Verdict(mutant)
    started = time.monotonic()
    order = Plan(0, seconds, faults_for(mutant), load=mutant.load, hasty=True)
    for outcome in hunters.run(mutant, seeds, order):
        verdict.seeds += 1
        if not outcome.ok:
            verdict.caught_by = outcome
    verdict.real_s = time.monotonic() - started
    return verdict


def check_true_source(hunters: Hunters, verdict: Verdict) -> None:
    """Let the true source make the run that has caught the bug: what fails in it without the bug is
    no catch."""
    caught = verdict.caught_by
    if caught is None:
        return
    plan = caught.plan
    true = hunt(hunters, verdict.mutant._replace(edits=()), [plan.seed], seconds=plan.seconds)
    verdict.true_source = true.caught_by


def runs_of_others(
    mutant: Mutant, mutants: Sequence[Mutant], catches: Mapping[str, Catch]
) -> list[Catch]:
    """The runs that have caught other bugs with the same faults and load. The run that has caught
    the most bugs comes first.

    The true source has to survive each recorded run, so bugs that share one cost less.
    """
    order = faults_for(mutant), mutant.load
    runs = Counter(
        (catch.seed, catch.seconds)
        for other in mutants
        if other.name != mutant.name and (faults_for(other), other.load) == order
        if (catch := catches.get(other.name)) is not None
    )
    often = sorted(runs, key=lambda run: (-runs[run], run))
    return [Catch(seed, seconds, 0.0) for seed, seconds in often[:OTHERS_MAX]]


def shorten(hunters: Hunters, verdict: Verdict) -> None:
    """Let a catch be one of fewer seconds of faults if its seed catches the bug in those: in
    ``SHORT_S``, or else in those that had passed when it was caught. The true source is run with
    what is recorded, to its end."""
    caught = verdict.caught_by
    if caught is None:
        return
    for seconds in sorted({SHORT_S, max(SHORT_S, math.ceil(caught.virtual_s))}):
        if seconds < caught.plan.seconds:
            shorter = hunt(hunters, verdict.mutant, [caught.plan.seed], seconds=seconds)
            if shorter.caught:
                verdict.caught_by = shorter.caught_by
                return


# ------------------------------------------------------------------------------- the record


def recorded(path: Path = RECORD) -> dict[str, Catch]:
    """The catches that ``record`` wrote last, by the mutants' names."""
    if not path.exists():
        return {}
    return {name: Catch(*fields) for name, fields in json.loads(path.read_text()).items()}


def record(verdicts: Sequence[Verdict], path: Path = RECORD) -> None:
    """Record where each mutant was caught. Mutants without a verdict keep their entries, and so do
    those whose run is bad without them."""
    catches: Mapping[str, Catch] = recorded(path)
    found = dict(catches)
    for verdict in verdicts:
        if verdict.true_source is not None:
            continue
        found.pop(verdict.mutant.name, None)
        outcome = verdict.caught_by
        if outcome is not None:
            plan = outcome.plan
            found[verdict.mutant.name] = Catch(plan.seed, plan.seconds, round(outcome.cpu_s, 1))
    lines = [f"  {json.dumps(name)}: {json.dumps(list(found[name]))}" for name in sorted(found)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
