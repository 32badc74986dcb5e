"""Many runs: worker processes share them, a file records their outcomes, and a later campaign can
resume them."""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import subprocess
from collections import Counter, deque
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from chaos.sim.faults.registry import KINDS, SEEN_AS
from chaos.sim.laws.law import Proof
from chaos.sim.laws.registry import LAWS
from chaos.sim.runs.mutants.harness import ROOMS, worker
from chaos.sim.runs.swarm import Plan, RunOutcome
from chaos.sim.work.load import LoadKind

# The most seeds that a process takes at a time. Many of them outweigh the cost of its start.
_BLOCK_MAX = 50
_BLOCKS_PER_JOB = 4  # at least, so that no process has much left when the others are done
_READ_BYTES = 1 << 16


class CampaignError(Exception):
    """The runs cannot begin, or cannot go on."""


def run_seeds(
    root: Path, order: Plan, seeds: Collection[int], jobs: int
) -> Generator[RunOutcome, None, None]:
    """Run ``order`` with each of the seeds on the source under ``root``. Yields outcomes as they
    come.

    If a process dies, its present seed has failed and the other seeds go on. Close the generator to
    end early. Raises CampaignError if the source cannot be run at all.
    """
    waiting = deque(_blocks(sorted(seeds), jobs))
    running: list[_Worker] = []
    selector = selectors.DefaultSelector()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                began = _Worker(root, order, waiting.popleft())
                running.append(began)
                selector.register(began.output, selectors.EVENT_READ, began)
            for key, _ in selector.select():
                ready: _Worker = key.data
                yield from ready.read()
                if not ready.ended:
                    continue
                selector.unregister(key.fileobj)
                running.remove(ready)
                if ready.left:
                    yield ready.loss()
                if len(ready.left) > 1:
                    waiting.appendleft(ready.left[1:])
    finally:
        for each in running:
            each.end()
        selector.close()


def _blocks(seeds: Sequence[int], jobs: int) -> Iterator[range]:
    """The seeds, in order, as ranges of a suitable size."""
    size = max(1, min(_BLOCK_MAX, -(-len(seeds) // (jobs * _BLOCKS_PER_JOB))))
    start = None
    for index, seed in enumerate(seeds):
        start = seed if start is None else start
        follows = index + 1 < len(seeds) and seeds[index + 1] == seed + 1
        if not follows or seed + 1 - start == size:
            yield range(start, seed + 1)
            start = None


class _Worker:
    """A process with a range of seeds."""

    def __init__(self, root: Path, order: Plan, seeds: range) -> None:
        self.left = seeds  # seeds without an outcome yet
        self.ended = False
        self._order = order
        self._process: subprocess.Popen[str] = worker(root, seeds, order, own_session=True)
        assert self._process.stdout is not None
        self.output: IO[str] = self._process.stdout
        self._buffer = b""

    def read(self) -> list[RunOutcome]:
        """The outcomes since the last call. Call it when there is output or the process ended."""
        data = os.read(self.output.fileno(), _READ_BYTES)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if not data:
            self._process.wait()
            self.output.close()
            self.ended = True
        self.left = self.left[len(lines) :]
        return [RunOutcome.from_json(line.decode()) for line in lines]

    def loss(self) -> RunOutcome:
        """The outcome of the seed that ran when the process died. Raises CampaignError if the
        process ended by itself, so that no seed is to blame."""
        status = self._process.returncode
        if status >= 0:  # a run never raises, so the source itself cannot be run
            raise CampaignError(
                f"a process for seeds {self.left.start}..{self.left.stop - 1} ended with "
                f"status {status}"
            )
        return RunOutcome(
            replace(self._order, seed=self.left.start),
            violations=[f"its process was ended by signal {-status}"],
        )

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.output.close()


# ----------------------------------------------------------------------------------- on disk


def source_digest(root: Path) -> str:
    """A digest of all Python source under ``root``. It tells outcomes of different source apart."""
    digest = hashlib.sha256()
    for file in sorted(path for room in ROOMS for path in (root / room).rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Results:
    """A file of outcomes, one line of JSON each. All are of one source and one order."""

    def __init__(self, file: Path, order: Plan, source: str) -> None:
        self._path = file
        self._order = order
        self._source = source
        self._file: IO[str] | None = None

    def open(self, *, resume: bool) -> list[RunOutcome]:
        """Begin a new file, or resume an old one. Returns the outcomes that it holds already.
        Raises CampaignError if they are of another source or order."""
        found = self._load() if resume and self._path.exists() else []
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = self._path.with_name(f"{self._path.name}.tmp")
        whole.write_text("".join(self._line(outcome) for outcome in found))
        whole.replace(self._path)
        self._file = self._path.open("a")
        return found

    def add(self, outcome: RunOutcome) -> None:
        assert self._file is not None
        self._file.write(self._line(outcome))
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def held(self) -> list[RunOutcome]:
        """Close it. Returns the outcomes that the file holds now: a signal may come between the
        writing of an outcome and all else that is done with it."""
        self.close()
        return self._load()

    def _line(self, outcome: RunOutcome) -> str:
        return json.dumps({"source": self._source, **asdict(outcome)}) + "\n"

    def _load(self) -> list[RunOutcome]:
        found: dict[int, RunOutcome] = {}
        for line in self._path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # the writer was killed within the line
            data = json.loads(line)
            source = data.pop("source")
            outcome = RunOutcome.from_json(json.dumps(data))
            if source != self._source or replace(outcome.plan, seed=0) != self._order:
                raise CampaignError(
                    f"{self._path} is of other options or another source; "
                    "begin anew without --resume, or in another --dir"
                )
            found[outcome.plan.seed] = outcome
        return list(found.values())


# ----------------------------------------------------------------------------------- summary


ENOUGH_SEEDS = 500
_ALWAYS_SEEN = ("acknowledged", "compared", "consumed", "elections")
_SEEN_AMONG_ALL_FAULTS = (
    "isr changes",
    "leader epochs",
    "linearizable reads",
    "own changes read",
    "read under a name that came again",
    "rolled logs compared",
    "segments deleted by retention",
    "segments rolled",
    "topics created",
    "topics deleted",
    "topics remade",
    "truncations",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """The sums of all runs."""

    seeds: int
    failed: int
    virtual_s: float
    cpu_s: float  # spent by all worker processes, their start included
    coverage: dict[str, int]
    faults: dict[str, int]
    looks: dict[str, int]
    is_rare: bool = False  # all runs were under rare load

    @classmethod
    def of(cls, outcomes: Collection[RunOutcome]) -> Summary:
        coverage: Counter[str] = Counter()
        faults: Counter[str] = Counter()
        looks = Counter({law.name: 0 for law in LAWS})
        for outcome in outcomes:
            coverage.update(outcome.coverage)
            faults.update(outcome.faults)
            looks.update(outcome.looks)
        return cls(
            seeds=len(outcomes),
            failed=sum(not each.ok for each in outcomes),
            virtual_s=sum(each.virtual_s for each in outcomes),
            cpu_s=sum(each.cpu_s for each in outcomes),
            coverage=dict(sorted(coverage.items())),
            faults=dict(sorted(faults.items())),
            looks=dict(looks),
            is_rare=all(each.plan.load is LoadKind.RARE for each in outcomes),
        )

    def neglected(self, kinds: Collection[str]) -> list[str]:
        """Events that this number of runs with these kinds of faults should have seen but never
        did.

        Empty while there are too few runs to tell.
        """
        if self.seeds < ENOUGH_SEEDS:
            return []
        told = {**self.coverage, **self.faults}
        everything = set(KINDS) <= set(kinds)
        wanted = [*_ALWAYS_SEEN, *(_SEEN_AMONG_ALL_FAULTS if everything else ()), *kinds]
        names = [name for kind in wanted for name in SEEN_AS.get(kind, (kind,))]
        unseen = [name for name in names if not told.get(name)]
        proven = {Proof.RUN}
        if everything:
            proven |= {Proof.CAMPAIGN, Proof.RARE} if self.is_rare else {Proof.CAMPAIGN}
        laws = [law.name for law in LAWS if law.proof in proven]
        return unseen + [f"anything to look at: {name}" for name in laws if not self.looks[name]]

    def laws(self) -> list[tuple[str, int, str]]:
        """Each law, how often it has really looked at something, and what must not lack a look."""
        return [(law.name, self.looks[law.name], law.proof.value) for law in LAWS]

    def rows(self) -> dict[str, int | float]:
        """All figures by name, for display."""
        return {
            "seeds": self.seeds,
            "failed": self.failed,
            "virtual hours": round(self.virtual_s / 3600, 2),
            "CPU seconds": round(self.cpu_s, 1),
            "virtual seconds per CPU second": round(self.virtual_s / max(self.cpu_s, 1e-9), 1),
            **self.coverage,
            **{f"fault {kind}": count for kind, count in self.faults.items()},
        }
