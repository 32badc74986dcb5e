"""Which lines each test runs, so that a mutant meets only the tests that may notice it."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self, TypeVar

from tests.mutation.mutants import ROOT, Mutant, Room

_T = TypeVar("_T")

_TRACED_S = 5.0  # of processor time; a test that takes more counts as one that runs every line


class Footprint(NamedTuple):
    """Of one test."""

    seconds: float  # of processor time: those of a busy machine are no others
    lines: Mapping[str, frozenset[int]] | None  # by the path of the source; None: all there are

    def touches(self, mutant: Mutant) -> bool:
        if self.lines is None:
            return True
        return not self.lines.get(mutant.path, frozenset()).isdisjoint(mutant.lines)

    def to_json(self) -> list[Any]:
        if self.lines is None:
            return [self.seconds, None]
        return [self.seconds, {path: sorted(lines) for path, lines in self.lines.items()}]

    @classmethod
    def from_json(cls, data: list[Any]) -> Self:
        seconds, lines = data
        if lines is None:
            return cls(seconds, None)
        return cls(seconds, {path: frozenset(numbers) for path, numbers in lines.items()})


class Tracer:
    """Notes which lines of some files are run."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._lines: dict[str, set[int]] = {path: set() for path in paths}
        self._noting = {str(ROOT / path): _noting(lines) for path, lines in self._lines.items()}
        self._until_s = 0.0
        self._gave_up = False

    def trace(self, run: Callable[[], _T]) -> tuple[Footprint, _T]:
        """What ``run`` returned, too."""
        for lines in self._lines.values():
            lines.clear()
        started_s = time.process_time()
        self._until_s, self._gave_up = started_s + _TRACED_S, False
        sys.settrace(self._enter)
        try:
            returned = run()
        finally:
            sys.settrace(None)
        seconds = round(time.process_time() - started_s, 4)
        if self._gave_up:
            return Footprint(seconds, None), returned
        found = {path: frozenset(lines) for path, lines in self._lines.items() if lines}
        return Footprint(seconds, found), returned

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        note = self._noting.get(frame.f_code.co_filename)
        if note is None:
            return None
        if time.process_time() > self._until_s:
            self._gave_up = True
            sys.settrace(None)
            return None
        return note(frame, event, argument)


def _noting(lines: set[int]) -> Callable[[FrameType, str, object], Any]:
    def note(frame: FrameType, event: str, argument: object) -> Any:
        lines.add(frame.f_lineno)
        return note

    return note


class Cache:
    """Keeps footprints in a file for as long as sources and tests stay as they are."""

    def __init__(self, file: Path, rooms: Sequence[Room]) -> None:
        self._file = file
        support = sorted(ROOT.glob("tests/support/*.py"))
        self.paths = [path for room in rooms for path in room.paths]
        sources = [ROOT / path for path in self.paths]
        self._common = hashlib.sha256(b"".join(each.read_bytes() for each in sources + support))
        self._kept: dict[str, dict[str, list[Any]]] = {}
        if file.exists():
            self._kept = json.loads(file.read_text())

    def _key(self, test_file: Path) -> str:
        digest = self._common.copy()
        digest.update(test_file.read_bytes())
        return f"{test_file.relative_to(ROOT)} {digest.hexdigest()[:16]}"

    def get(self, test_file: Path) -> dict[str, Footprint] | None:
        """Of the file's tests, by their ids."""
        kept = self._kept.get(self._key(test_file))
        if kept is None:
            return None
        return {test: Footprint.from_json(data) for test, data in kept.items()}

    def put(self, test_file: Path, found: Mapping[str, Footprint]) -> None:
        name = f"{test_file.relative_to(ROOT)} "
        self._kept = {key: kept for key, kept in self._kept.items() if not key.startswith(name)}
        self._kept[self._key(test_file)] = {test: each.to_json() for test, each in found.items()}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._kept))
