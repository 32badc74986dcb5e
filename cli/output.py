"""What commands print: tables for people, JSON for programs, one line for an error."""

from __future__ import annotations

import dataclasses
import difflib
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from stele.ids import encode_uuid
from stele.printable import printable, printable_lines


class CommandError(Exception):
    """The command cannot do what was asked; ``str()`` is the one line that says why."""


class UsageError(CommandError):
    """The command line itself makes no sense, whatever the cluster is like. The exit status is 2,
    as for an unknown option."""


def print_json(data: object) -> None:
    json.dump(data, sys.stdout, indent=2, default=_plain)
    sys.stdout.write("\n")


def as_plain(data: object) -> Any:
    """What JSON makes of it, for a command that adds to it."""
    return json.loads(json.dumps(data, default=_plain))


def _plain(value: Any) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _member(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _member(value: Any, name: str) -> object:
    """A topic id is written as everywhere in Kafka."""
    member = getattr(value, name)
    return encode_uuid(member) if name == "topic_id" and isinstance(member, bytes) else member


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns. A terminal that is too narrow for them gets each row as a block of lines:
    what is printed is never cut, since other commands need it whole."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(columns, rows, width):
        print(line)


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[object]], width: int | None
) -> list[str]:
    """The lines of a table, for so many columns of characters; None: as wide as need be."""
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if cells and width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        return _stacked(columns, cells)
    return [
        _GAP.join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in (columns, *cells)
    ]


_GAP = "   "


def _stacked(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A block for each row: a line for each cell that holds something, then an empty line."""
    longest = max(map(len, columns))
    lines = []
    for row in rows:
        lines += [
            f"{column.ljust(longest)}  {cell}"
            for column, cell in zip(columns, row, strict=True)
            if cell != "-"
        ]
        lines.append("")
    return lines[:-1]


def note(line: str) -> None:
    """A console for messages to people: it writes to standard error, beside the output."""
    print(printable_lines(line), file=sys.stderr, flush=True)


def say(line: str) -> None:
    """A line of the output that has names in it."""
    print(printable(line))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` Did you mean …?`` where a known name is near; else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def known_words(text: str, known: Sequence[str], option: str) -> list[str]:
    """The values of a list with commas, whatever their case. Raises CommandError."""
    by_lower = {each.lower(): each for each in known}
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        if each.lower() not in by_lower:
            raise CommandError(
                f"{option} {each!r} is not known.{did_you_mean(each, known)} "
                f"There are: {', '.join(known)}"
            )
        found.append(by_lower[each.lower()])
    return found


def key_values(items: Iterable[str], option: str) -> dict[str, str]:
    """``name=value`` items as a mapping. Raises CommandError."""
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {item!r} is not of the form name=value")
        found[name.strip()] = value.strip()
    return found
