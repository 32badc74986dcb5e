"""Bytes as text: what is shown is what is there, whatever it is."""

from __future__ import annotations

import pytest

from console.record_text import Form, shown


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (None, Form.AUTO, ("null", "")),
        (b"", Form.AUTO, ("text", "")),
        (b"plain", Form.AUTO, ("text", "plain")),
        (b"plain", Form.JSON, ("text", "plain")),
        (b'{"a":1.5}', Form.AUTO, ("json", '{\n  "a": 1.5\n}')),
        (b'{"a":1.5}', Form.TEXT, ("text", '{"a":1.5}')),
        (b"17", Form.AUTO, ("text", "17")),
        (b"\x00\x01", Form.AUTO, ("hex", f"00000000  {'00 01'.ljust(47)}  ..")),
        (b"\xff", Form.TEXT, ("hex", f"00000000  {'ff'.ljust(47)}  .")),
        (b"az", Form.HEX, ("hex", f"00000000  {'61 7a'.ljust(47)}  az")),
    ],
)
def test_bytes_have_a_form(data: bytes | None, form: Form, expected: tuple[str, str]) -> None:
    found = shown(data, form)
    assert (found.form, found.text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "[1.10]",
        "[1e400]",
        "[-0]",
        "[NaN]",
        '["\\ud800"]',
        "[" * 100_000,
        "[" + "9" * 5000 + "]",
        "{",
    ],
)
def test_json_that_would_change_stays_as_it_was_written(text: str) -> None:
    found = shown(text.encode(), Form.JSON, most_bytes=1_000_000)
    assert (found.form, found.text) == ("text", text)


def test_json_that_would_become_far_longer_stays_as_it_was_written() -> None:
    deep = "[" * 400 + ",".join(["0"] * 50_000) + "]" * 400
    found = shown(deep.encode(), Form.JSON, most_bytes=1_000_000)
    assert (found.form, len(found.text)) == ("text", len(deep))
    assert shown(b"[" * 20 + b"]" * 20, Form.JSON).form == "json"


def test_a_cut_ends_between_characters() -> None:
    found = shown("ab€".encode(), Form.AUTO, most_bytes=4)
    assert (found.form, found.text, found.is_cut, found.size_bytes) == ("text", "ab", True, 5)
    assert not shown(b"ab", Form.AUTO, most_bytes=2).is_cut


def test_a_character_that_is_broken_in_the_middle_is_no_text() -> None:
    assert shown(b"a\xe2\x82b, and more", Form.AUTO, most_bytes=5).form == "hex"
