"""The structure of the source, besides the floors that import-linter checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = (
    "cli", "chaos", "spark", "node", "broker", "controller", "runtime", "security", "raft",
    "metadata", "storage", "world", "stele",
)  # fmt: skip

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
