"""A planted bug: texts of the source, and their replacements."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """A change of one file's text. ``old`` must stand in the file exactly once."""

    path: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One bug. If two checks cover each other, nobody would notice that one is missing: then the
    bug removes both."""

    name: str
    edits: tuple[Edit, ...]
    # The aims (chaos.sim.faults.aim) that may show it soon. Without aims and kinds: a whole storm.
    aims: tuple[str, ...] = ()
    # The kinds of the storm that may show it soon.
    kinds: tuple[str, ...] = ()


def bug(name: str, path: str, old: str, new: str, *aims: str) -> Mutant:
    return Mutant(name, (Edit(path, old, new),), aims)
