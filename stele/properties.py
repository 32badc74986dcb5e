"""The format of server.properties and of clients' files: the common part of Java's .properties."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:]?\s*")
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Settings by key; the last one counts where a key stands twice.

    ``#`` and ``!`` begin a comment line, a backslash at a line's end joins the next one to it,
    key and value are separated by ``=``, ``:`` or white space.
    """
    settings = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        if match is not None:
            settings[_unescape(match[1])] = _unescape(line[match.end() :]).rstrip()
    return settings


def format_properties(settings: Mapping[str, str]) -> str:
    """The text that ``parse_properties`` reads as these settings. No value may end in a blank."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    joined = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not joined and line[:1] in ("", "#", "!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        lines.append(joined + line)
        joined = ""
    if joined:
        lines.append(joined)
    return lines


def _unescape(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _NAMED.get(match[2], match[2])

    return _ESCAPE.sub(replacement, text)
