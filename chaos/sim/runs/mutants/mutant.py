"""A planted bug: functions of the source, and what is changed in them."""

from __future__ import annotations

from typing import NamedTuple

from chaos.sim.work.load import LoadKind


class MutantError(Exception):
    """The catalogue and the source do not fit together."""


class Edit(NamedTuple):
    """A change of one function, in code: layout and comments do not count.

    ``old`` is an expression or some statements that follow each other, and must stand in the
    function exactly once. ``new`` takes its place. It is empty if statements, or an operand of
    ``and`` or ``or``, only go.
    """

    path: str
    function: str  # after the classes and functions around it: "RaftCore.step"; "": the module
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
    load: LoadKind = LoadKind.DRAWN


def bug(name: str, path: str, function: str, old: str, new: str, *aims: str) -> Mutant:
    return Mutant(name, (Edit(path, function, old, new),), aims)
