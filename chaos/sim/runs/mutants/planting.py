"""Plants bugs in the running process: a function that is there already gets other code.

Nothing is imported anew. So everything that holds the function, under any name, runs the bug.
"""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from chaos.sim.runs.mutants.mutant import Edit, Mutant, MutantError
from chaos.sim.runs.mutants.syntax import substituted

_Place = tuple[str, str, int]  # file, qualified name, first line
_NEWLOCALS = 0x2  # a function has this flag, and the body of a class has not


class Functions:
    """The functions that this process has imported from some files."""

    def __init__(self, files: Collection[str]) -> None:
        self._functions: dict[_Place, list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename in files:
                self._functions[_place(each.__code__)].append(each)

    def give(self, code: CodeType) -> Sequence[FunctionType]:
        """Give the code to all functions of its place, for good. Returns these functions."""
        functions = self._functions.get(_place(code), [])
        for function in functions:
            function.__code__ = code
        return functions

    def has(self, code: CodeType) -> bool:
        """Whether a function of this place is there."""
        return _place(code) in self._functions


def outermost(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes, but not those within functions."""
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            continue
        if constant.co_flags & _NEWLOCALS:
            yield constant
        else:
            yield from outermost(constant)


def edited(mutant: Mutant, root: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Each file that the bug changes, and its tree with the bug. Raises MutantError if code is not
    there exactly once."""
    edits: dict[str, list[Edit]] = {}
    for edit in mutant.edits:
        edits.setdefault(edit.path, []).append(edit)
    for path, changes in edits.items():
        tree = ast.parse((root / path).read_text())
        try:
            for edit in changes:
                substituted(tree, edit.function, edit.old, edit.new)
        except ValueError as error:
            raise MutantError(f"{mutant.name}: {path}: {error}") from error
        yield root / path, tree


def changes(mutant: Mutant, root: Path) -> Iterator[tuple[CodeType, CodeType]]:
    """Each function that the bug changes, without and with it. Raises MutantError if the bug
    changes anything else."""
    for file, tree in edited(mutant, root):
        before = compile(file.read_text(), str(file), "exec", dont_inherit=True)
        after = compile(tree, str(file), "exec", dont_inherit=True)
        if _around(before) != _around(after):
            raise MutantError(f"{mutant.name}: {file}: it changes more than functions")
        for old, new in zip(outermost(before), outermost(after), strict=True):
            if old != new:
                yield old, new


def plant(mutant: Mutant, root: Path, functions: Functions) -> None:
    """Plant the bug in this process, which has imported the source under ``root``. Raises
    MutantError if that is not possible."""
    for old, new in changes(mutant, root):
        what = f"{mutant.name}: {new.co_filename}: {new.co_qualname}"
        # A function within a function is made anew whenever the outer one runs. One that is there
        # already, such as a decorator's, would go on with the old code.
        if any(functions.has(inner) for inner in _within(old)):
            raise MutantError(f"{what} has made functions at the import")
        if not functions.give(new):
            raise MutantError(f"{what} was not imported")


def _place(code: CodeType) -> _Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _within(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _within(constant)


def _around(code: CodeType) -> tuple[Any, ...]:
    """Everything of a module or of a class but the insides of its functions."""
    constants = [
        (type(each).__name__, repr(each))
        if not isinstance(each, CodeType)
        else (each.co_qualname, each.co_freevars)
        if each.co_flags & _NEWLOCALS
        else _around(each)
        for each in code.co_consts
    ]
    return code.co_code, code.co_names, code.co_freevars, code.co_cellvars, tuple(constants)
