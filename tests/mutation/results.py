"""What became of the mutants, kept from run to run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from tests.mutation.mutants import ROOMS, Mutant, digest

KILLED_BY_TESTS, KILLED_BY_SIMULATOR = "tests", "simulator"
EQUIVALENT, OPEN = "equivalent", "open"
OUTCOMES = (KILLED_BY_TESTS, KILLED_BY_SIMULATOR, EQUIVALENT, OPEN)


class Result(NamedTuple):
    """Of one mutant of one state of its source file."""

    mutant: str
    source: str
    outcome: str
    by: str = ""  # the test that failed, the seed and its violation, or why it is equivalent
    tests: int = 0  # in which it decides something otherwise

    @classmethod
    def of(cls, mutant: Mutant, outcome: str, by: str = "", tests: int = 0) -> Self:
        return cls(mutant.name, digest(mutant.path), outcome, by, tests)


class Results:
    """The newest result of each mutant, in a file that only grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._newest: dict[str, Result] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                result = Result(**json.loads(line))
                self._newest[result.mutant] = result

    def add(self, result: Result) -> None:
        self._newest[result.mutant] = result
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps(result._asdict()) + "\n")

    def of(self, mutant: Mutant) -> Result | None:
        """Only of the source as it is."""
        result = self._newest.get(mutant.name)
        return result if result is not None and result.source == digest(mutant.path) else None

    def is_killed(self, mutant: Mutant) -> bool:
        result = self.of(mutant)
        return result is not None and result.outcome in (KILLED_BY_TESTS, KILLED_BY_SIMULATOR)


COLUMNS = ("room", "made", *OUTCOMES)


def rows(mutants: Sequence[Mutant], results: Results) -> list[tuple[object, ...]]:
    """For a table: how many of each room came to what."""
    table: list[tuple[object, ...]] = []
    for room in ROOMS:
        those = [mutant for mutant in mutants if mutant.room is room]
        if those:
            counts = _counts(those, results)
            table.append((room.name, len(those), *(counts[outcome] for outcome in OUTCOMES)))
    counts = _counts(mutants, results)
    table.append(("all", len(mutants), *(counts[outcome] for outcome in OUTCOMES)))
    return table


def _counts(mutants: Iterable[Mutant], results: Results) -> Mapping[str, int]:
    return Counter(result.outcome for mutant in mutants if (result := results.of(mutant)))
