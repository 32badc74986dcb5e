"""``stele drill``: its list, and its one-line errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from chaos.drills.registry import DRILLS
from cli import drill
from cli.main import run


def test_the_list_names_every_drill(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", "list", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == [
        drill.name for drill in DRILLS
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["run", "leader-kiled"],
            "there is no drill 'leader-kiled'. Did you mean 'leader-killed'?",
        ),
        (["run", "cut-off-one-way"], "cuts the network, which needs --cluster compose"),
        (["self-test", "nothing"], "there is no drill 'nothing'"),
        (["check", "missing.jsonl"], "missing.jsonl: No such file or directory"),
        (["report", "--dir", "nowhere"], "there is no history below nowhere"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drill", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "which drill? Name some, or give --all"),
        (["run", "leader-killed", "--all"], "give names of drills or --all, not both"),
        (["run", "leader-killed", "--cluster", "k8s"], "'k8s' is neither process nor compose"),
        (
            ["run", "leader-killed", "--seconds", "9"],
            "--seconds: only for exactly-once-chain and queue",
        ),
        (["run", "queue", "--per-s", "9"], "--per-s: only for exactly-once-chain"),
    ],
)
def test_the_exit_status_shows_a_wrong_command_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drill", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_dockers_client_is_needed_for_containers_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("docker", "chaos.drills.compose", "chaos.compose_cluster"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "docker", None)  # as where it is not installed
    assert run(["drill", "run", "leader-killed", "--cluster", "compose"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install docker" in line
    monkeypatch.setattr(drill, "_run", lambda doing: [])
    assert run(["drill", "run", "leader-killed"]) == 0


def test_a_broken_history_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text("{}\n")
    assert run(["drill", "check", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{file} is no history of a drill: line 1: header is missing" in line
