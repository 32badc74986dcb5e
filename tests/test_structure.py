"""The structure of the source, besides the floors that import-linter checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = (
    "cli", "chaos", "console", "spark", "node", "broker", "controller", "runtime", "security",
    "raft", "metadata", "storage", "world", "stele",
)  # fmt: skip

SIZED: Final = (*ROOMS, "bench", "deploy", "tests")
GENERATED: Final = ("stele/wire/v1", "stele/wire/kafka/messages")
FILE_LINES_MOST: Final = 640
FUNCTION_LINES_MOST: Final = 80
"""The aim is 600 lines and a screen of 70. Somewhat more may wait until the next change there."""

Imports = Mapping[str, set[str]]
"""Which files of ours each file names, by dotted name."""


def imports_of_rooms() -> Imports:
    """All imports, including those under TYPE_CHECKING and within functions."""
    paths = {_dotted(path): path for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    return {name: set(_named_by(path, paths)) - {name} for name, path in paths.items()}


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _named_by(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                raise AssertionError(f"{path}: imports are absolute")
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                if below in known:
                    yield below
                elif node.module in known:
                    yield node.module


def circles(imports: Imports) -> list[list[str]]:
    """The files of each circle: the strongly connected components of more than one file."""
    reached = {name: _reached_from(name, imports) for name in imports}
    found = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in imports
        if name in reached[name]
    }
    return [list(circle) for circle in sorted(found)]


def _reached_from(name: str, imports: Imports) -> set[str]:
    reached = set[str]()
    ahead = [name]
    while ahead:
        new = imports[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached


def test_circles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"f"}, "f": {"e"}}
    assert circles(imports) == [["b", "c"], ["e", "f"]]


def test_no_files_import_one_another() -> None:
    found = circles(imports_of_rooms())
    assert found == [], "a circle of imports: let the lower file say by a protocol what it needs"


def too_long(name: str, text: str) -> list[str]:
    """The file if it has too many lines, and its functions whose bodies do not fit on a screen."""
    found: list[str] = []
    if (lines := len(text.splitlines())) > FILE_LINES_MOST:
        found.append(f"{name} has {lines} lines")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.body[0].lineno + 1  # commands have many options
            if lines > FUNCTION_LINES_MOST:
                found.append(f"{name}: {node.name} has {lines} lines")
    return found


def test_long_files_and_functions_are_found() -> None:
    function = "def long():\n" + "    pass\n" * (FUNCTION_LINES_MOST + 1)
    assert too_long("a.py", function) == [f"a.py: long has {FUNCTION_LINES_MOST + 1} lines"]
    assert too_long("a.py", "pass\n" * FILE_LINES_MOST) == []
    assert too_long("a.py", "pass\n" * 700) == ["a.py has 700 lines"]


def test_a_file_is_one_noun_and_a_function_fits_on_a_screen() -> None:
    paths = (path for room in SIZED for path in (ROOT / room).rglob("*.py"))
    names = {str(path.relative_to(ROOT)): path for path in paths}
    found = [
        line
        for name, path in sorted(names.items())
        if not name.startswith(GENERATED)
        for line in too_long(name, path.read_text())
    ]
    assert found == [], "split them by noun"
