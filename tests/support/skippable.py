"""The tests that a machine may skip: ``python -m tests.support.skippable`` prints them for pytest.

Such a test skips something or looks for a program, or it uses a function or a fixture that does:
one of its own file, of a module of tests, or of a ``conftest.py``. All other tests do the same on
every machine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
_SKIPS: Final = "skips or looks for a program"  # no name of a function
_CALLS: Final = frozenset(
    {"pytest.skip", "pytest.mark.skipif", "pytest.importorskip", "shutil.which"}
)


def skippable(source: str, skipping: frozenset[str] = frozenset()) -> list[str] | None:
    """The names of those tests in a file, in its order. None: all of the file may be skipped.

    ``skipping`` names what other files give to this one and what skips there.
    """
    uses = _uses(source)
    if uses is None:
        return None
    found = _reached(uses, skipping)
    return [name for name in uses if name.startswith("test_") and name in found]


def _uses(source: str) -> dict[str, set[str]] | None:
    """The names that each function and each value of a file uses. None: the file may be skipped."""
    uses: dict[str, set[str]] = {}
    for statement in ast.parse(source).body:
        names = _names_in(statement)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            uses[statement.name] = names
        elif isinstance(statement, ast.Assign) and not _marks_file(statement):
            for target in statement.targets:
                uses |= dict.fromkeys(_names_in(target), names)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        elif _SKIPS in names:
            return None  # a class with such a test, or a mark of the whole file
    return uses


def _reached(uses: dict[str, set[str]], skipping: frozenset[str]) -> set[str]:
    found, before = {_SKIPS, *skipping}, set[str]()
    while found != before:
        before = set(found)
        found |= {name for name, used in uses.items() if used & found}
    return found


def _given(test: Path) -> frozenset[str]:
    """What skips among the names that a test's file imports, and its folders' fixtures."""
    found = set(_imported(test))
    for folder in test.parents:
        if folder.is_relative_to(TESTS):
            found |= _skipping(folder / "conftest.py")
    return frozenset(found)


def _imported(file: Path) -> frozenset[str]:
    """What skips among the names that a file imports from modules of tests."""
    return frozenset(
        each.name
        for statement in ast.parse(file.read_text()).body
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("tests.")
        for each in statement.names
        if each.name in _skipping(_file_of(statement.module or ""))
    )


def _file_of(module: str) -> Path:
    return TESTS.parent.joinpath(*module.split(".")).with_suffix(".py")


@cache
def _skipping(file: Path) -> frozenset[str]:
    if not file.exists():
        return frozenset()
    uses = _uses(file.read_text())
    assert uses is not None, f"{file} skips as a whole"
    return frozenset(_reached(uses, _imported(file)))


def _marks_file(statement: ast.Assign) -> bool:
    """Whether the file is skipped as a whole, or marked so."""
    text = ast.unparse(statement)
    return text.startswith("pytestmark ") or "pytest.importorskip" in text


def _names_in(node: ast.AST) -> set[str]:
    """The names that code uses, also as fixtures, and ``_SKIPS`` if it does that itself."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.Attribute) and ast.unparse(each) in _CALLS:
            found.add(_SKIPS)
    return found


def main() -> Iterator[str]:
    """The arguments with which pytest runs all of them."""
    for file in sorted(TESTS.rglob("test_*.py")):
        path = file.relative_to(TESTS.parent)
        names = skippable(file.read_text(), _given(file))
        if names is None:
            yield str(path)
        else:
            yield from (f"{path}::{name}" for name in names)


if __name__ == "__main__":
    for line in main():
        print(line)
