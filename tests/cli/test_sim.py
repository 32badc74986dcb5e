"""``stele sim``, run as a user would."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.sim.swarm import Outcome, Plan
from cli import sim_run
from cli.main import run


def test_seeds_are_run_and_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sim", "--seeds", "0..1", "--seconds", "3", "--jobs", "1", "--json"]
    assert run([*arguments, "--dir", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["seeds"] == 2
    assert document["summary"]["failed"] == 0
    assert document["summary"]["acknowledged"] > 0
    assert document["failures"] == []
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["plan"]["seed"] for line in lines] == [0, 1]
    assert (
        sum(line["coverage"]["acknowledged"] for line in lines)
        == (document["summary"]["acknowledged"])
    )


def test_what_is_done_is_not_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[int]] = []

    def fake(_: Path, order: Plan, seeds: set[int], jobs: int) -> Iterator[Outcome]:
        asked.append(set(seeds))
        for seed in sorted(seeds):
            if seed == 2 and len(asked) == 1:
                raise KeyboardInterrupt
            yield Outcome(replace(order, seed=seed), virtual_s=3600.0)

    monkeypatch.setattr(sim_run, "run_seeds", fake)
    arguments = ["sim", "--seeds", "0..3", "--load", "light", "--dir", str(tmp_path), "--json"]
    assert run(arguments) == 130
    captured = capsys.readouterr()
    assert "2 of 4 seeds" in captured.err
    document = json.loads(captured.out)
    assert document["interrupted"]
    assert document["summary"]["virtual hours"] == 2
    assert run([*arguments, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["virtual hours"] == 4
    assert asked == [{0, 1, 2, 3}, {2, 3}]
    assert run([*arguments, "--seconds", "5", "--resume"]) == 1
    assert "is of other options" in capsys.readouterr().err


def test_a_trace_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sim", "--seed", "2", "--seconds", "2", "--trace"]) == 0
    captured = capsys.readouterr()
    assert " storm calm" in captured.out
    assert captured.err.startswith("transcript ")


def test_a_failure_names_seed_and_transcript(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Outcome(Plan(7, acts=2), violations=["it broke"], acts=9, transcript=["a line"])
    monkeypatch.setattr(sim_run, "run_seeds", lambda *_: (each for each in [bad]))
    monkeypatch.setattr(sim_run, "shortest", lambda _: bad)
    assert run(["sim", "--seed", "7", "--dir", str(tmp_path), "--json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["seed"] == 7
    assert failure["violation"] == "it broke"
    assert failure["acts"] == "2 of 9 are enough"
    assert Path(failure["transcript"]).read_text() == "violation it broke\na line\n"


def test_a_planted_bug_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    only = "acks=1 before the sync"
    arguments = ["sim", "--mutants", "--only", only, "--seeds", "0..3", "--seconds", "5"]
    assert run([*arguments, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["result"] == "caught"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--seeds", "x"], 1, "not of the form"),
        (["--seeds", "3..1"], 1, "is empty"),
        (["--faults", "rain"], 1, "no kind of fault 'rain'"),
        (["--trace"], 2, "--trace goes with --seed"),
        (["--load", "heavy"], 2, "neither drawn nor light"),
        (["--mutants", "--only", "nothing"], 1, "no planted bug"),
    ],
)
def test_what_cannot_be_is_said(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sim", *arguments]) == code
    assert message in capsys.readouterr().err
