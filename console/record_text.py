"""Keys and values of records as text for people. Their bytes are anybody's."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Any, Final

SHORT_BYTES: Final = 2_000
"""The bytes shown of a value among others; the record's own page shows more."""
LONG_BYTES: Final = 1_000_000
HEX_COLUMNS: Final = 16
MOST_GROWTH: Final = 8
"""Long JSON is indented if its characters become at most this many times as many. In an array that
is 900 arrays deep, each number would have a line of 1,800 spaces of its own."""


class Form(enum.StrEnum):
    """``AUTO`` is JSON where the bytes are JSON, else text where they are text, else hex."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Shown:
    """``form``: null, text, json or hex."""

    form: str
    text: str
    size_bytes: int
    is_cut: bool = False


def shown(data: bytes | None, form: Form, most_bytes: int = SHORT_BYTES) -> Shown:
    """The bytes in a form. If they are not in it, in the next one of ``Form.AUTO``."""
    if data is None:
        return Shown("null", "", 0)
    is_cut = len(data) > most_bytes
    part = data[:most_bytes]
    if form is not Form.HEX and (text := _text(part, is_cut)) is not None:
        if form is not Form.TEXT and not is_cut and (pretty := _pretty_json(text)) is not None:
            return Shown("json", pretty, len(data))
        return Shown("text", text, len(data), is_cut)
    return Shown("hex", _hex_dump(part), len(data), is_cut)


def _text(data: bytes, is_cut: bool) -> str | None:
    """None: it is no UTF-8, or holds characters that no text has."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut_character = is_cut and len(data) - error.start < 4
        if not is_cut_character or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode("utf-8")
    return None if any(ord(each) < 32 and each not in "\t\n\r" for each in text) else text


def _pretty_json(text: str) -> str | None:
    """Indented objects and arrays. None: it is something else, or would change by being indented
    (a name that stands twice, a number that Python writes otherwise)."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_once,
            parse_float=_same,
            parse_int=_same_integer,
            parse_constant=_same,
        )
        pretty = _indented(value, max(SHORT_BYTES, MOST_GROWTH * len(text)))
        pretty.encode()  # half of a surrogate pair is in JSON, but in no page
        return pretty
    except (ValueError, RecursionError):
        return None


def _indented(value: object, most_chars: int) -> str:
    """Raises ValueError."""
    parts = []
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        most_chars -= len(part)
        if most_chars < 0:
            raise ValueError("it grows too much")
        parts.append(part)
    return "".join(parts)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _same(text: str) -> float:
    number = float(text)
    if repr(number) != text:
        raise ValueError("Python writes this number otherwise")
    return number


def _same_integer(text: str) -> int:
    number = int(text)
    if str(number) != text:
        raise ValueError("Python writes this number otherwise")
    return number


def _hex_dump(data: bytes) -> str:
    """Offset, bytes and their printable characters, as ``hexdump -C`` has them."""
    lines = []
    for start in range(0, len(data), HEX_COLUMNS):
        row = data[start : start + HEX_COLUMNS]
        codes = row.hex(" ").ljust(HEX_COLUMNS * 3 - 1)
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{start:08x}  {codes}  {letters}")
    return "\n".join(lines)
