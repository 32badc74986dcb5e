"""``stele sim``, run as a user would."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.sim.runs.mutants.harness import Verdict, recorded, source_tree, worker
from chaos.sim.runs.swarm import Plan, RunOutcome
from chaos.sim.work.load import LoadKind
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

    def fake(_: Path, order: Plan, seeds: set[int], jobs: int) -> Iterator[RunOutcome]:
        asked.append(set(seeds))
        for seed in sorted(seeds):
            if seed == 2 and len(asked) == 1:
                raise KeyboardInterrupt
            yield RunOutcome(replace(order, seed=seed), virtual_s=3600.0)

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
    bad = RunOutcome(Plan(7, acts=2), violations=["it broke"], acts=9, transcript=["a line"])
    monkeypatch.setattr(sim_run, "run_seeds", lambda *_: (each for each in [bad]))
    monkeypatch.setattr(sim_run, "shortest", lambda _: bad)
    assert run(["sim", "--seed", "7", "--dir", str(tmp_path), "--json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["seed"] == 7
    assert failure["violation"] == "it broke"
    assert failure["acts"] == "2 of 9 are enough"
    assert Path(failure["transcript"]).read_text() == "violation it broke\na line\n"


def test_a_failure_that_does_not_come_again_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = RunOutcome(Plan(7), violations=["it broke"]), RunOutcome(Plan(7))
    monkeypatch.setattr(sim_run, "run_seeds", lambda *_: (each for each in [bad]))
    monkeypatch.setattr(sim_run, "shortest", lambda _: good)
    assert run(["sim", "--seed", "7", "--dir", str(tmp_path), "--json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["violation"] == "it broke"
    assert "the source was changed" in failure["acts"]


def test_a_planted_bug_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    only = "acks=1 before the sync"
    arguments = ["sim", "--mutants", "--only", only, "--seeds", "0..3", "--seconds", "5"]
    assert run([*arguments, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["result"] == "caught"


def test_a_run_that_fails_without_a_planted_bug_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object, verdict: Verdict) -> None:
        verdict.true_source = verdict.caught_by

    monkeypatch.setattr(sim_run, "check_true_source", fail)
    arguments = ["sim", "--mutants", "--only", "raft: vote for a worse log", "--seeds", "1"]
    assert run([*arguments, "--seconds", "8", "--jobs", "1"]) == 1
    told = capsys.readouterr()
    assert "FAILS ANYWAY" in told.out
    assert "0 of 1 caught" in told.out
    assert (
        "seed 1 fails without a planted bug, too, so it shows none: stele sim --seed 1 " in told.err
    )


@pytest.mark.parametrize(
    ("options", "found"), [([], []), (["--seeds", "1..1", "--seconds", "8"], [1])]
)
def test_a_seed_that_still_catches_its_bug_stays_recorded_unless_seeds_are_given(
    options: list[str],
    found: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "raft: vote for a worse log"
    noted: list[Verdict] = []
    monkeypatch.setattr(sim_run, "recorded", lambda: {name: recorded()[name]})
    monkeypatch.setattr(sim_run, "record", noted.extend)
    assert run(["sim", "--mutants", "--record", "--only", name, "--jobs", "1", *options]) == 0
    assert "1 of 1 caught" in capsys.readouterr().out
    assert [each.caught_by.plan.seed for each in noted if each.caught_by] == found


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--seeds", "x"], 1, "not of the form"),
        (["--seeds", "3..1"], 1, "is empty"),
        (["--faults", "rain"], 1, "no kind of fault 'rain'"),
        (["--trace"], 2, "--trace goes with --seed"),
        (["--load", "heavy"], 2, "is none of drawn, light, rare"),
        (["--mutants", "--only", "no such name"], 1, "no planted bug"),
    ],
)
def test_what_cannot_be_is_said(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sim", *arguments]) == code
    assert message in capsys.readouterr().err


# --------------------------------------------------------------------------------- interrupted

WAIT_S = 120.0


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def workers(process: "subprocess.Popen[str]") -> list[int]:
    """The processes that already run the simulator."""
    every = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [int(pid) for file in every for pid in file.read_text().split()]
    modules = (b"chaos.sim.runs.worker", b"chaos.sim.runs.mutants.forks")
    return [pid for pid in children if any(each in _command(pid) for each in modules)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
@pytest.mark.parametrize("mutants", [False, True], ids=["seeds", "mutants"])
def test_a_signal_ends_the_workers_and_sums_up(
    tmp_path: Path, mutants: bool, number: signal.Signals, code: int
) -> None:
    results, temporary = tmp_path / "results", tmp_path / "temporary"
    temporary.mkdir()
    what = ["--mutants"] if mutants else ["--load", "light", "--faults", "kill"]
    options = ["--seeds", "0..9999", "--seconds", "1", "--jobs", "2", "--dir", str(results)]
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "sim", *what, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    file = results / "results.jsonl"
    try:
        wait_until(lambda: len(workers(process)) == 2, process)
        if not mutants:
            wait_until(lambda: file.exists() and "\n" in file.read_text(), process)
        running = workers(process)
        process.send_signal(number)
        told, errors = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()  # nothing where it has ended; its workers end with their next word
    assert process.returncode == code
    assert "Traceback" not in errors
    assert [pid for pid in running if _command(pid)] == []
    assert list(temporary.iterdir()) == []
    if not mutants:
        done = len(file.read_text().splitlines())
        assert f"interrupted: {done} of 10000 seeds; --resume goes on" in errors
        assert "acknowledged" in told


def test_a_worker_that_nobody_listens_to_says_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with source_tree() as root:
        process = worker(root, [0], Plan(0, seconds=1.0, faults=("kill",), load=LoadKind.LIGHT))
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(WAIT_S) == -signal.SIGPIPE
    assert capfd.readouterr().err == ""
