"""The tests that a machine may skip: ``python -m tests.support.skippable`` prints them for pytest.

Such a test, or a function or fixture of its file that it uses, skips something or looks for a
program. All other tests do the same on every machine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
_SKIPS: Final = "skips or looks for a program"  # no name of a function
_CALLS: Final = frozenset(
    {"pytest.skip", "pytest.mark.skipif", "pytest.importorskip", "shutil.which"}
)


def skippable(source: str) -> list[str] | None:
    """The names of those tests in a file, in its order. None: all of the file may be skipped."""
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
    found, before = {_SKIPS}, set[str]()
    while found != before:
        before = set(found)
        found |= {name for name, used in uses.items() if used & found}
    return [name for name in uses if name.startswith("test_") and name in found]


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
        names = skippable(file.read_text())
        if names is None:
            yield str(path)
        else:
            yield from (f"{path}::{name}" for name in names)


if __name__ == "__main__":
    for line in main():
        print(line)
