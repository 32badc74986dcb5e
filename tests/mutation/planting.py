"""Planting a mutant in the running process: a function that is there already gets other code.

Nothing is imported anew, so whoever holds the function, by whatever name, runs the mutant.
"""

from __future__ import annotations

import gc
import importlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from tests.mutation.mutants import ROOT, Mutant, Room
from tests.mutation.probing import Probes, names_for, probed

_Place = tuple[str, str, int]  # file, qualified name, first line


class Ground:
    """The functions of some rooms, as imported."""

    def __init__(self, rooms: Sequence[Room]) -> None:
        paths = [path for room in rooms for path in room.paths]
        for path in paths:
            importlib.import_module(path.removesuffix(".py").replace("/", "."))
        files = {str(ROOT / path) for path in paths}
        self._functions: dict[_Place, list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename in files:
                self._functions[_place(each.__code__)].append(each)

    def plant(self, mutant: Mutant) -> None:
        """For good: this process ends with it. Raises LookupError where nothing can be planted."""
        codes = {code.co_qualname: code for code in _outermost(mutant.compiled())}
        # A function within a function is made anew whenever that one runs.
        names = (".".join(mutant.function[:end]) for end in range(1, len(mutant.function) + 1))
        code = next(codes[name] for name in names if name in codes)
        if not self._give(code, {}):
            raise LookupError(f"{mutant.name}: no such function was imported")

    def plant_probes(self, mutants: Sequence[Mutant], probes: Probes) -> None:
        """For good, too. Raises LookupError likewise."""
        for module in probed(mutants):
            for code in _outermost(module.code):
                has_probes = code.co_qualname in module.functions
                if has_probes and not self._give(code, names_for(probes)):
                    raise LookupError(f"{module.path}: {code.co_qualname} was not imported")

    def _give(self, code: CodeType, names: dict[str, Any]) -> bool:
        """Give the code to all functions of its place. Returns whether there is one."""
        functions = self._functions[_place(code)]
        for function in functions:
            function.__code__ = code
            function.__globals__.update(names)
        return bool(functions)


def _place(code: CodeType) -> _Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _outermost(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes, but those within functions."""
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            continue
        if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function; a class body has none
            yield constant
        else:
            yield from _outermost(constant)
