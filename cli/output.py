"""What commands print: tables for people, JSON for programs, one line for an error."""

from __future__ import annotations

import dataclasses
import difflib
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


class CommandError(Exception):
    """The command cannot do what was asked; ``str()`` is the one line that says why."""


def print_json(data: object) -> None:
    json.dump(data, sys.stdout, indent=2, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns; as wide as need be when the output is no terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=not sys.stdout.isatty())
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def note(line: str) -> None:
    """For people, beside the output: goes to standard error."""
    print(line, file=sys.stderr, flush=True)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` Did you mean …?`` where a known name is near; else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def key_values(items: Iterable[str], option: str) -> dict[str, str]:
    """``name=value`` items as a mapping. Raises CommandError."""
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"{option} {item!r} is not of the form name=value")
        found[name.strip()] = value.strip()
    return found
