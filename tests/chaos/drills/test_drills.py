"""Drills on real processes: one that must be green, and its proof that it can be red."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.drills.history import read_history, write_history
from chaos.drills.planted import lose_one, plant_all
from cli.main import run

pytestmark = pytest.mark.processes


def test_a_killed_leader_loses_nothing_and_everything_planted_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drill", "run", "leader-killed", "--dir", str(tmp_path), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["green"]
    assert told["acknowledged"] > 100
    assert told["times"]["elections"] >= 1
    place = tmp_path / "leader-killed"
    assert {each.name for each in place.iterdir()} == {
        "history.jsonl", "report.md", "report.json", "report.html",
    }  # fmt: skip
    assert run(["drill", "check", str(place / "history.jsonl")]) == 0

    history = read_history(place / "history.jsonl")
    caught, missed = plant_all(history)
    assert missed == []
    assert {"lose_one", "lose_the_end", "write_twice", "swap_two"} <= set(caught)
    lossy = lose_one(history)
    assert lossy is not None
    (tmp_path / "lossy").mkdir()
    write_history(lossy, tmp_path / "lossy" / "history.jsonl")
    assert run(["drill", "check", str(tmp_path / "lossy" / "history.jsonl")]) == 1

    assert run(["drill", "report", "--dir", str(tmp_path)]) == 1
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    verdicts = [row[:2] for row in rows if row and row[0] in ("leader-killed", "lossy")]
    assert verdicts[:2] == [["leader-killed", "green"], ["lossy", "RED"]]
    assert ["leader-killed", "write", "outage", "2"] in [row[:4] for row in rows], "of two runs"


def test_a_queue_keeps_its_promises_while_workers_and_leaders_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drill of a few seconds: the first four victims are three workers and a leader."""
    asked = ["drill", "run", "queue", "--seconds", "5", "--dir", str(tmp_path), "--json"]
    assert run(asked) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["green"]
    assert told["queue"]["records"] > 100
    assert told["queue"]["poison"] > 0
    assert told["queue"]["deliveries"] > told["queue"]["records"]
