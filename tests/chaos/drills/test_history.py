"""Histories as files: written and read again, and refused with one line when they are broken."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from chaos.drills.history import (
    History,
    HistoryError,
    HistoryWriter,
    parse_history,
    read_history,
    write_history,
)
from tests.support.histories import green, histories


@given(histories())
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_read(history: History) -> None:
    file = io.StringIO()
    writer = HistoryWriter(file, history.header)
    for event in history.events:
        writer.write(event)
    assert parse_history(file.getvalue().splitlines(), "h") == history


def test_a_history_in_a_file(tmp_path: Path) -> None:
    write_history(green(), tmp_path / "history.jsonl")
    assert read_history(tmp_path / "history.jsonl") == green()


HEADER = json.dumps({"header": {"format": 1}})


def lines_of_green() -> list[str]:
    file = io.StringIO()
    HistoryWriter(file, green().header)
    return file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        ("no json", "line 2: Expecting value"),
        ("[]", "line 2: "),
        ('{"event":"eaten"}', "line 2: an event of kind 'eaten' is not known"),
        ('{"event":"sent","at_ms":1}', "line 2: "),
        ('{"event":"step","at_ms":1,"phase":"x","text":"","nodes":[]}', "phase='x'"),
        ('{"event":"quorum","at_ms":true,"leader":1,"epoch":1}', "at_ms=True"),
        ('{"event":"quorum","at_ms":1,"leader":"1","epoch":1}', "leader='1'"),
        ('{"event":"quorum","at_ms":1,"leader":1,"epoch":1,"extra":1}', "extra=1"),
    ],
)
def test_a_broken_event_is_named_by_its_line(event: str, cause: str) -> None:
    with pytest.raises(HistoryError) as broken:
        parse_history([*lines_of_green(), event], "h.jsonl")
    assert "h.jsonl is no history of a drill: line 2" in str(broken.value)
    assert cause in str(broken.value)
    assert "\n" not in str(broken.value)


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([], "it is empty"),
        ([HEADER], "line 1: expectations is missing"),
        (['{"header":{"format":9}}'], "line 1: format 9 is not known, only 1"),
        (["{}"], "line 1: header is missing"),
    ],
)
def test_a_broken_header_is_reported(lines: list[str], cause: str) -> None:
    with pytest.raises(HistoryError, match=cause):
        parse_history(lines, "h.jsonl")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "h").write_bytes(b"\xff\xfe")
    with pytest.raises(HistoryError, match="it is not text"):
        read_history(tmp_path / "h")
