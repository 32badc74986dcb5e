"""Planting a bug: a copy of the source with one change, and runs of the swarm upon it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from chaos.sim.mutants.catalogue import Mutant
from chaos.sim.storm import KINDS
from chaos.sim.swarm import Outcome

ROOT = Path(__file__).parents[3]
ROOMS = (
    "broker",
    "chaos",
    "controller",
    "metadata",
    "node",
    "raft",
    "runtime",
    "stele",
    "storage",
)


class MutantError(Exception):
    """The catalogue and the source do not fit together."""


@dataclass(slots=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    seeds: int = 0  # tried, the one that caught it included
    caught_by: Outcome | None = None

    @property
    def caught(self) -> bool:
        return self.caught_by is not None


def mutate(mutant: Mutant, root: Path) -> None:
    """Change the source under ``root``. Raises MutantError when the text is not there once."""
    file = root / mutant.path
    text = file.read_text()
    count = text.count(mutant.old)
    if count != 1:
        raise MutantError(
            f"{mutant.name}: its text stands {count} times in {mutant.path}, not once"
        )
    file.write_text(text.replace(mutant.old, mutant.new))


@contextmanager
def source_tree(mutant: Mutant | None = None) -> Iterator[Path]:
    """A copy of the source that nobody changes meanwhile, with the bug planted."""
    with TemporaryDirectory(prefix="stele-sim-") as name:
        root = Path(name)
        for room in ROOMS:
            shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            mutate(mutant, root)
        yield root


def worker(
    root: Path, seeds: range, *, seconds: float, faults: tuple[str, ...] = KINDS
) -> subprocess.Popen[str]:
    """A process that runs seeds on the source under ``root``: a line of JSON for each outcome."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "chaos.sim.worker",
            str(seeds.start),
            str(seeds.stop),
            str(seconds),
            ",".join(faults),
        ],
        cwd=root,
        env={"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )


def outcomes(process: subprocess.Popen[str]) -> Iterator[Outcome]:
    """As they come. Raises RuntimeError when the process ends badly; ends it when closed early."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            yield Outcome.from_json(line)
        if process.wait() != 0:
            raise RuntimeError(f"a worker ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def hunt(
    mutant: Mutant,
    *,
    seeds: int,
    seconds: float,
    first_seed: int = 0,
    on_seed: Callable[[int], None] = lambda _: None,
) -> Verdict:
    """Run seeds with the bug planted until one of them fails."""
    verdict = Verdict(mutant)
    with source_tree(mutant) as root:
        process = worker(root, range(first_seed, first_seed + seeds), seconds=seconds)
        running = outcomes(process)
        try:
            for outcome in running:
                verdict.seeds += 1
                on_seed(verdict.seeds)
                if not outcome.ok:
                    verdict.caught_by = outcome
                    break
        finally:
            running.close()  # type: ignore[attr-defined]
    return verdict
