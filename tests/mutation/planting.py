"""Planting a mutant in the running process: a function that is there already gets other code.

Nothing is imported anew, so whoever holds the function, by whatever name, runs the mutant.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import CodeType
from typing import Any

from chaos.sim.runs.mutants.planting import Functions, outermost
from tests.mutation.mutants import ROOT, Mutant, Room
from tests.mutation.probing import Probes, names_for, probed


class Ground:
    """The functions of some rooms, as imported."""

    def __init__(self, rooms: Sequence[Room]) -> None:
        paths = [path for room in rooms for path in room.paths]
        for path in paths:
            importlib.import_module(path.removesuffix(".py").replace("/", "."))
        self._functions = Functions({str(ROOT / path) for path in paths})

    def plant(self, mutant: Mutant) -> None:
        """For good: this process ends with it. Raises LookupError where nothing can be planted."""
        codes = {code.co_qualname: code for code in outermost(mutant.compiled())}
        # A function within a function is made anew whenever that one runs.
        names = (".".join(mutant.function[:end]) for end in range(1, len(mutant.function) + 1))
        code = next(codes[name] for name in names if name in codes)
        if not self._give(code, {}):
            raise LookupError(f"{mutant.name}: no such function was imported")

    def plant_probes(self, mutants: Sequence[Mutant], probes: Probes) -> None:
        """For good, too. Raises LookupError likewise."""
        for module in probed(mutants):
            for code in outermost(module.code):
                has_probes = code.co_qualname in module.functions
                if has_probes and not self._give(code, names_for(probes)):
                    raise LookupError(f"{module.path}: {code.co_qualname} was not imported")

    def _give(self, code: CodeType, names: dict[str, Any]) -> bool:
        """Give the code to all functions of its place. Returns whether there is one."""
        functions = self._functions.give(code)
        for function in functions:
            function.__globals__.update(names)
        return bool(functions)
