"""How tests are divided among the processes of pytest-xdist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scheduling import unit_of, workers

MARK = "pytest." + "mark"  # apart, or this file would be taken for one with these marks
PROCESSES = f"pytestmark = {MARK}.processes\n"


@pytest.mark.parametrize(
    ("source", "unit"),
    [
        ("", "test_a.py"),
        (f"pytestmark = {MARK}.apart\n", "test_a.py::test"),
        (PROCESSES, "own processes"),
        (PROCESSES + "def test(bootstrap_servers: str) -> None: ...", "own processes"),
        (PROCESSES + "def test(bootstrap: str) -> None: ...", "shared cluster"),
        (PROCESSES + "def test(process_cluster: ProcessCluster) -> None: ...", "shared cluster"),
        (PROCESSES + "def test(spark: SparkSession) -> None: ...", "shared cluster"),
        (f"@{MARK}.containers\ndef test() -> None: ...", "own processes"),
    ],
)
def test_the_unit_of_a_test_follows_from_its_file(tmp_path: Path, source: str, unit: str) -> None:
    (tmp_path / "test_a.py").write_text(source)
    assert unit_of("test_a.py::test", tmp_path) == unit


def test_there_is_one_worker_more_than_there_are_cores() -> None:
    assert workers(2) == 3
