"""What ``consume`` and ``share consume`` print: the named formats, and the letters of kcat."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cli.output import CommandError, UsageError, did_you_mean
from cli.records.json_form import json_line, text_or_base64

if TYPE_CHECKING:
    from stele.records import ConsumerRecord, ShareRecord

    Record = ConsumerRecord | ShareRecord

FORMATS: Final = ("value", "key-value", "json")

LineOf = Callable[["Record"], bytes]
_Part = Callable[["Record"], bytes]


class ValueForm(enum.StrEnum):
    """How the bytes of a value are shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"


def line_format(text: str, form: ValueForm) -> LineOf:
    """The line of a record, with its line feed. Raises UsageError for a format that does not
    exist."""
    value = _VALUES[form]
    if text == "value":
        return lambda record: value(record) + b"\n"
    if text == "key-value":
        return lambda record: (record.key or b"") + b"\t" + value(record) + b"\n"
    if text == "json":
        return lambda record: json_line(record, _json_value(record, form))
    if "%" not in text:
        raise UsageError(
            f"--format {text!r} is not one of {', '.join(FORMATS)}, and has no letter such as %v."
            f"{did_you_mean(text, FORMATS)}"
        )
    parts = _parsed(text, value)
    return lambda record: b"".join([part(record) for part in parts])


def _text(record: Record) -> bytes:
    return record.value or b""


def _hex(record: Record) -> bytes:
    return (record.value or b"").hex().encode()


def _compact_json(record: Record) -> bytes:
    if record.value is None:
        return b"null"
    return json.dumps(_parsed_value(record), ensure_ascii=False, separators=(",", ":")).encode()


_VALUES: Final[dict[ValueForm, _Part]] = {
    ValueForm.TEXT: _text,
    ValueForm.HEX: _hex,
    ValueForm.JSON: _compact_json,
}


def _json_value(record: Record, form: ValueForm) -> object:
    if record.value is None:
        return None
    if form is ValueForm.HEX:
        return record.value.hex()
    return _parsed_value(record) if form is ValueForm.JSON else text_or_base64(record.value)


def _parsed_value(record: Record) -> object:
    try:
        return json.loads(record.value or b"")
    except ValueError as error:
        raise CommandError(
            f"{record.topic}-{record.partition}: the value at offset {record.offset} is not JSON: "
            f"{error}; read it with --value text or --value hex"
        ) from None


def _size(data: bytes | None) -> bytes:
    """As kcat says it: -1 of no key, or of a tombstone."""
    return b"-1" if data is None else b"%d" % len(data)


def _headers(record: Record) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )


_LETTERS: Final[dict[str, _Part]] = {
    "k": lambda record: record.key or b"",
    "K": lambda record: _size(record.key),
    "S": lambda record: _size(record.value),
    "h": _headers,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "%": lambda record: b"%",
}
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_PIECE: Final = re.compile(r"%(.?)|\\(?:x([0-9A-Fa-f]{2})|(.?))|[^%\\]+", re.DOTALL)


def _parsed(text: str, value: _Part) -> list[_Part]:
    """The parts of a format of letters. A line feed follows, unless it ends with an escape."""
    letters = {**_LETTERS, "v": value, "s": value}
    parts: list[_Part] = []
    ends_with_escape = False
    for found in _PIECE.finditer(text):
        letter, code, escape = found.groups()
        ends_with_escape = code is not None or escape is not None
        if letter is not None:
            if letter not in letters:
                raise UsageError(
                    f"--format: %{letter} is no letter of a record; there are "
                    f"{' '.join(f'%{each}' for each in letters)}"
                )
            parts.append(letters[letter])
        elif code is not None:
            parts.append(_constant(bytes.fromhex(code)))
        elif escape is not None:
            if escape not in _ESCAPES:
                raise UsageError(
                    f"--format: \\{escape} is no escape; there are \\n \\r \\t \\0 \\\\ and \\xNN"
                )
            parts.append(_constant(_ESCAPES[escape]))
        else:
            parts.append(_constant(found[0].encode()))
    return parts if ends_with_escape else [*parts, _constant(b"\n")]


def _constant(data: bytes) -> _Part:
    return lambda record: data
