"""What many runs of one drill have cost, against its budgets. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from chaos.drills.history import History, Zombie
from chaos.drills.report import longest
from chaos.drills.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Distribution:
    """One measure of one drill over its runs, of each run the worst. ``budget`` None: no budget.
    Times are in milliseconds."""

    drill: str
    measure: str
    runs: int
    median: float
    p99: float
    most: float
    budget: float | None

    @property
    def is_within(self) -> bool:
        """Whether the 99th percentile is. A run that is red for another reason says so itself."""
        return self.budget is None or self.p99 <= self.budget


Judged = tuple[History, Verdict]


def distributions(judged: Iterable[Judged]) -> list[Distribution]:
    """What the runs of each drill have measured. Drills stand in the order of their first runs."""
    by_drill: dict[str, list[Judged]] = {}
    for each in judged:
        by_drill.setdefault(each[0].header.drill, []).append(each)
    return [found for drill, runs in by_drill.items() for found in _of_drill(drill, runs)]


def _of_drill(drill: str, runs: Sequence[Judged]) -> Iterator[Distribution]:
    expected = runs[0][0].header.expectations
    yield from _measured(drill, "write outage", runs, _writes, expected.write_outage_ms)
    yield from _measured(drill, "read outage", runs, _reads, expected.read_outage_ms)
    yield from _measured(drill, "detected", runs, lambda run: run[1].times.detected_ms, None)
    yield from _measured(
        drill, "recovered", runs, lambda run: run[1].times.recovered_ms, expected.recovery_ms
    )
    if expected.zombie:
        yield from _measured(drill, "zombie acknowledgements", runs, _zombies, 0)


def _writes(run: Judged) -> float | None:
    return longest(run[1].times.writes)


def _reads(run: Judged) -> float | None:
    return longest(run[1].times.reads)


def _zombies(run: Judged) -> float | None:
    outcomes = [each.outcome for each in run[0].of(Zombie)]
    return float(sum(outcome == "NONE" for outcome in outcomes)) if outcomes else None


def _measured(
    drill: str,
    measure: str,
    runs: Sequence[Judged],
    value: Callable[[Judged], float | None],
    budget: float | None,
) -> Iterator[Distribution]:
    """A run that has not measured it has exceeded any budget."""
    values = sorted(math.inf if (seen := value(run)) is None else seen for run in runs)
    if budget is None and values[-1] == math.inf:
        return
    yield Distribution(
        drill,
        measure,
        len(values),
        percentile(values, 50),
        percentile(values, 99),
        values[-1],
        budget,
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The least value that so many percent of them are not above."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
