"""Names that strangers choose, as people see them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output import note, say, table_lines
from stele.printable import printable, printable_lines

BAD = "a\x1b[2Jb\nc\rd\x9be\u202ef\u2028"
SHOWN = "a\\x1b[2Jb\\nc\\rd\\x9be\\u202ef\\u2028"


def test_what_moves_the_cursor_or_turns_the_text_is_escaped() -> None:
    assert printable(BAD) == SHOWN
    assert printable_lines(BAD) == SHOWN.replace("\\n", "\n")
    assert printable("é 東 ' \\n \"") == "é 東 ' \\n \""


@given(st.text())
def test_a_name_is_one_line(text: str) -> None:
    assert len(printable(text).splitlines()) <= 1
    assert "\x1b" not in printable(text) + printable_lines(text)
    assert len(printable_lines(text).split("\n")) == len(text.split("\n"))


def test_commands_show_names_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert table_lines(["NAME"], [[BAD], [None]], None) == ["NAME", SHOWN, "-"]
    say(BAD)
    note(BAD)
    told = capsys.readouterr()
    assert told.out == SHOWN + "\n"
    assert told.err == SHOWN.replace("\\n", "\n") + "\n"
