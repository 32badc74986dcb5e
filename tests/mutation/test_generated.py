"""Generated mutants: some of them are made and tried, as ``scripts/mutants`` does with all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.children import ChildError, Job, Lost, allow, running
from tests.mutation.mutants import ROOMS, ROOT, Mutant, equivalent, mutants_of
from tests.mutation.results import KILLED_BY_TESTS, OPEN, Result, Results, rows

MADE = [mutant for room in ROOMS for mutant in mutants_of(room)]


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MADE}) == len(MADE) > 1000


def test_those_called_equivalent_are_made_and_have_a_reason() -> None:
    reasons = equivalent()
    assert set(reasons) <= {mutant.name for mutant in MADE}
    assert all(reasons.values())


def tried(directory: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation", "--json", "--directory", directory, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer["open"] else 0)
    return answer


def test_a_sample_is_killed(tmp_path: Path) -> None:
    options = ("--room", "partition", "--tests-only")
    answer = tried(tmp_path, *options, "--sample", "12", "--seed", "232")
    assert answer["open"] == []
    assert answer["rooms"][-1]["made"] == 12


def test_the_simulator_notices_too(tmp_path: Path) -> None:
    name = "PartitionMachine._lead: `min` to `max` in `min(self.high_watermark, "
    options = ("--simulator-only", "--pool", "1", "--seeds", "1", "--seconds", "5")
    answer = tried(tmp_path, "--only", name, *options)
    assert [room["made"] for room in answer["rooms"]] == [1, 1]


# ---------------------------------------------------------------------------------- children


def said(jobs: Sequence[Job], parallel: int = 2) -> dict[Any, Any]:
    with running(jobs, parallel) as answers:
        return {job.key: answer for job, answer in answers}


def test_each_child_says_what_its_work_returned() -> None:
    answers = said([Job(number, os.getpid, 60.0) for number in range(5)])
    assert set(answers) == set(range(5))
    assert len({*answers.values()} - {os.getpid()}) == 5


def test_a_child_is_allowed_so_much_processor_time() -> None:
    def spin() -> None:
        allow(10.0)
        allow(0.1)
        while True:
            pass

    assert said([Job("spins", spin, 100.0)]) == {"spins": Lost("died")}


def test_a_child_that_waits_in_a_test_is_killed_before_its_job_has_to_end() -> None:
    def wait() -> None:
        allow(0.05)
        time.sleep(600)

    assert said([Job("waits", wait, 600.0)]) == {"waits": Lost("died")}


def test_a_child_that_hangs_is_killed() -> None:
    def hang() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)

    answers = said([Job("hangs", hang, 0.2), Job("works", lambda: "done", 60.0)], parallel=1)
    assert answers == {"hangs": Lost("hung for 0 s"), "works": "done"}


def test_a_child_that_dies_is_noticed() -> None:
    assert said([Job("dies", lambda: os._exit(3), 60.0)]) == {"dies": Lost("died")}


def test_what_a_child_raises_is_raised() -> None:
    with pytest.raises(ChildError, match="ZeroDivisionError"):
        said([Job("divides", lambda: 1 // 0, 60.0)])


# ----------------------------------------------------------------------------------- results


def test_results_agree_with_the_newest_run(tmp_path: Path) -> None:
    mutant, other = MADE[0], MADE[1]
    results = Results(tmp_path / "results.jsonl")
    results.add(Result.of(mutant, OPEN))
    results.add(Result.of(other, OPEN))
    results.add(Result.of(mutant, KILLED_BY_TESTS, "a test", 3))
    again = Results(tmp_path / "results.jsonl")
    assert again.is_killed(mutant)
    assert not again.is_killed(other)
    assert rows([mutant, other], again)[-1] == ("all", 2, 1, 0, 0, 1)


def test_results_of_another_source_count_for_nothing(tmp_path: Path) -> None:
    mutant: Mutant = MADE[0]
    results = Results(tmp_path / "results.jsonl")
    results.add(Result(mutant.name, "another", KILLED_BY_TESTS))
    assert results.of(mutant) is None
