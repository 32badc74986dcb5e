"""In which tests each mutant would decide otherwise: only those may notice it.

A test of the true source runs once, with the probes of all mutants of a room in place
(``probing.py``). A mutant that decides nothing otherwise in a test leaves the test's run as it is.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from tests.mutation.mutants import ROOT, Mutant, Room, mutants_of
from tests.mutation.planting import Ground
from tests.mutation.probing import Probes

_T = TypeVar("_T")


class Footprint(NamedTuple):
    """Of one test."""

    seconds: float  # of processor time, which is the same on a busy machine
    mutants: frozenset[str]  # the names of the mutants that would have decided otherwise

    def touches(self, mutant: Mutant) -> bool:
        return mutant.name in self.mutants

    def to_json(self) -> list[Any]:
        return [self.seconds, sorted(self.mutants)]

    @classmethod
    def from_json(cls, data: list[Any]) -> Self:
        seconds, mutants = data
        return cls(seconds, frozenset(mutants))


class Tracer:
    """Runs tests with the probes of a room. The process ends with it."""

    def __init__(self, room: Room, ground: Ground) -> None:
        self._names = [mutant.name for mutant in mutants_of(room)]
        self._probes = Probes()
        ground.plant_probes(mutants_of(room), self._probes)

    def trace(self, run: Callable[[], _T]) -> tuple[Footprint, _T]:
        """What ``run`` returned, too."""
        self._probes.differed.clear()
        started_s = time.process_time()
        returned = run()
        seconds = round(time.process_time() - started_s, 4)
        differed = frozenset(self._names[number] for number in self._probes.differed)
        return Footprint(seconds, differed), returned


class Cache:
    """Keeps the footprints of a room's tests in a file while sources and tests stay as they are."""

    def __init__(self, file: Path, room: Room) -> None:
        self._file = file
        self._room = room
        support = sorted(ROOT.glob("tests/support/*.py"))
        sources = [ROOT / path for path in room.paths]
        self._common = hashlib.sha256(b"".join(each.read_bytes() for each in sources + support))
        self._kept: dict[str, dict[str, list[Any]]] = {}
        if file.exists():
            self._kept = json.loads(file.read_text())

    def _key(self, test_file: Path) -> str:
        digest = self._common.copy()
        digest.update(test_file.read_bytes())
        return f"{self._name(test_file)}{digest.hexdigest()[:16]}"

    def _name(self, test_file: Path) -> str:
        return f"{self._room.name} {test_file.relative_to(ROOT)} "

    def get(self, test_file: Path) -> dict[str, Footprint] | None:
        """Of the file's tests, by their ids."""
        kept = self._kept.get(self._key(test_file))
        if kept is None:
            return None
        return {test: Footprint.from_json(data) for test, data in kept.items()}

    def put(self, test_file: Path, found: Mapping[str, Footprint]) -> None:
        name = self._name(test_file)
        self._kept = {key: kept for key, kept in self._kept.items() if not key.startswith(name)}
        self._kept[self._key(test_file)] = {test: each.to_json() for test, each in found.items()}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._kept))
