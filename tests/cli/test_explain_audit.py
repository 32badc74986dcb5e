"""``stele explain audit``: what it reads from files, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import main
from cli.options import EXIT_NOT_WELL
from metadata.acl import Resource, ResourceType
from security.audit import Event, count_line, event_line
from tests.security.test_audit_report import AT_MS, denied

REFUSED = event_line(Event.CERTIFICATE_REFUSED, "CLIENTS", "it expired", time_ms=AT_MS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "audit.log"
    lines = [
        denied(left_out=2),
        denied("User:bob", resource=Resource(ResourceType.GROUP, "g"), time_ms=AT_MS + 1000),
        event_line(Event.LOGIN_FAILED, "CLIENTS", "wrong password", time_ms=AT_MS, host="10.0.0.9"),
        count_line("User:ann", time_ms=AT_MS, left_out=60),
        "a line of another kind",
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_it_prints_denials_with_their_remedies(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["explain", "audit", str(file)]) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    assert ["3", "2023-11-14T22:13:20.000Z", "User:ann", "READ", "topic:orders"] in [
        row[:5] for row in rows
    ]
    assert "to mend it: stele acls add User:ann READ topic:orders" in shown
    assert "to mend it: stele acls add User:bob READ group:g" in shown
    assert ["1", "2023-11-14T22:13:20.000Z", "login", "10.0.0.9"] in [row[:4] for row in rows]
    assert "60 more denials of User:ann were only counted" in shown


def test_it_chooses_by_principal_and_resource(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["explain", "audit", str(file), "--principal", "User:bob", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["resource"] for each in told["denials"]] == ["group:g"]
    assert told["connections"] == []
    assert main.run(["explain", "audit", str(file), "--resource", "topic:orders", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["principal"] for each in told["denials"]] == ["User:ann"]
    assert main.run(["explain", "audit", str(file), "--last", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["principal"] for each in told["denials"]] == ["User:bob"]


def test_a_refused_certificate_is_the_exit_status(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(REFUSED + "\n")
    assert main.run(["explain", "audit", str(file)]) == EXIT_NOT_WELL
    shown = capsys.readouterr().out
    assert "listener CLIENTS goes on with its old certificate since 2023-11-14" in shown
    assert "it expired" in shown


def test_files_without_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.log"
    empty.touch()
    assert main.run(["explain", "audit", str(empty)]) == 0
    out, err = capsys.readouterr()
    assert "nothing was denied or refused" in out
    assert "has no line of the audit log" in err
    assert main.run(["explain", "audit", str(tmp_path / "missing")]) == main.EXIT_FAILED
    assert "No such file" in capsys.readouterr().err


def test_the_standard_input_is_a_file(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.run(["explain", "audit", str(file)]) == 0
    expected = capsys.readouterr().out
    with file.open(encoding="utf-8") as lines:
        monkeypatch.setattr("sys.stdin", lines)
        assert main.run(["explain", "audit", "-"]) == 0
    assert capsys.readouterr().out == expected
