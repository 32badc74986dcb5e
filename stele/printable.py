"""Text that strangers have chosen, shown to people."""

from __future__ import annotations

from typing import Final

_CONTROLS: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_TURNING: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They change the direction of what follows them."""

_ESCAPED: Final = {code: repr(chr(code))[1:-1] for code in (*_CONTROLS, *_TURNING)}
_ESCAPED_BUT_LINES: Final = {code: text for code, text in _ESCAPED.items() if code != ord("\n")}


def printable(text: str) -> str:
    """The text with its control characters escaped: one line, which changes nothing on a terminal.
    Clients choose the names of groups and of themselves, and of much that a log is about."""
    return text if text.isprintable() else text.translate(_ESCAPED)


def printable_lines(text: str) -> str:
    """The same of several lines."""
    return text if text.isprintable() else text.translate(_ESCAPED_BUT_LINES)
