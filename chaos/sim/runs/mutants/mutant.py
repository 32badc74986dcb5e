"""What a planted bug is: texts of the source, and what to put in their place."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """A change of one file's text; ``old`` stands in it exactly once."""

    path: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One bug. Where two checks cover each other, taking one away changes nothing that anybody
    could see: then the bug is that both are gone."""

    name: str
    edits: tuple[Edit, ...]
    # What of chaos.sim.faults.aim has a chance of showing it soon; none: the whole storm does.
    aims: tuple[str, ...] = ()
    # Which kinds of the storm have; none: all of them.
    kinds: tuple[str, ...] = ()


def bug(name: str, path: str, old: str, new: str, *aims: str) -> Mutant:
    return Mutant(name, (Edit(path, old, new),), aims)
