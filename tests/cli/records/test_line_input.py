"""How a line of input becomes a record."""

from __future__ import annotations

import pytest

from cli.output import CommandError, UsageError
from cli.records.line_input import InputFormat, record_parser

LINES = InputFormat.LINES


@pytest.mark.parametrize(
    ("key", "field", "separator", "marker", "line", "record"),
    [
        (None, None, None, None, b"a,b", (None, b"a,b")),
        ("k", None, None, None, b"a", (b"k", b"a")),
        (None, 2, None, None, b"a,b,c", (b"b", b"a,b,c")),
        (None, 1, None, None, b'"x, y",b', (b"x, y", b'"x, y",b')),
        (None, None, "::", None, b"k::v::w", (b"k", b"v::w")),
        (None, None, ":", "NULL", b"k:NULL", (b"k", None)),
        (None, None, ":", "NULL", b"NULL:v", (None, b"v")),
        (None, None, ":", "", b"k:", (b"k", None)),
        (None, None, ":", None, b"k:", (b"k", b"")),
        (None, None, None, "NULL", b"NULLS", (None, b"NULLS")),
    ],
)
def test_a_line_has_a_key_and_a_value(
    key: str | None,
    field: int | None,
    separator: str | None,
    marker: str | None,
    line: bytes,
    record: tuple[bytes | None, bytes | None],
) -> None:
    made = record_parser(LINES, key, field, separator, marker)(line)
    assert made == (*record, (), None, None)


def test_a_line_of_json_has_all_fields() -> None:
    parse = record_parser(InputFormat.JSON, None, None, None, None)
    line = b'{"key": "k", "value": {"base64": "/w=="}, "timestamp_ms": 5, "partition": 2}'
    assert parse(line) == (b"k", b"\xff", (), 5, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((LINES, None, 1, "|", None), "give --key-field or --key-separator, not both"),
        ((LINES, "k", 1, None, None), "give --key or --key-field, not both"),
        ((LINES, None, None, "", None), "must not be empty"),
        ((InputFormat.JSON, "k", None, None, None), "--key and --format json exclude"),
        ((InputFormat.JSON, None, None, None, "x"), "--null-marker and --format json exclude"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    arguments: tuple[InputFormat, str | None, int | None, str | None, str | None], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        record_parser(*arguments)


def test_a_line_without_what_the_options_say_is_named() -> None:
    with pytest.raises(CommandError, match="fewer columns"):
        record_parser(LINES, None, 4, None, None)(b"a,b,c")
    with pytest.raises(CommandError, match="does not have it"):
        record_parser(LINES, None, None, "|", None)(b"kv")
