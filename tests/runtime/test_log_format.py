"""The log as text and as JSON."""

from __future__ import annotations

import json
import logging
import sys

from runtime.log_format import formatter


def record(message: str, *, with_error: bool = False) -> logging.LogRecord:
    made = logging.LogRecord("a.room", logging.WARNING, "f.py", 1, message, (), None)
    made.created = 1_700_000_000.25
    if with_error:
        try:
            raise ValueError("oh")
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


def test_json_is_one_line_whatever_the_message_contains() -> None:
    line = formatter("json", 7).format(record('two\nlines and a "quote"'))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "a.room",
        "node": 7,
        "message": 'two\nlines and a "quote"',
    }


def test_an_error_has_its_stack() -> None:
    told = json.loads(formatter("json", 7).format(record("it failed", with_error=True)))
    assert told["stack"].endswith("ValueError: oh")


def test_text_is_for_people() -> None:
    assert formatter("text", 7).format(record("hello")).endswith(" WARNING a.room: hello")


def test_a_line_of_text_ends_where_its_message_does() -> None:
    """The name of a user may look like another line, and clear the terminal."""
    text = formatter("text", 7)
    told = text.format(record("no user \x1b[2J'a\r\n2023-11-14 ERROR a.room: b\u2028'\t\x9b"))
    assert told.endswith(
        "a.room: no user \\x1b[2J'a\\r\\n2023-11-14 ERROR a.room: b\\u2028'\\t\\x9b"
    )
    stack = text.format(record("two\nlines", with_error=True)).splitlines()
    assert stack[0].endswith(" two\\nlines")
    assert stack[-1] == "ValueError: oh"
