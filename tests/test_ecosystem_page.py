"""docs/ecosystem.md has a row for each check of scripts/ecosystem, with its version."""

from __future__ import annotations

import re
from pathlib import Path

from bench.ecosystem.__main__ import CHECKS
from bench.ecosystem.stage import KAFKA_VERSION, PYTHON_PACKAGES

PAGE = (Path(__file__).parents[1] / "docs" / "ecosystem.md").read_text()


def test_each_check_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert rows == list(CHECKS)


def test_the_versions_are_those_that_run() -> None:
    named = set(re.findall(r"Kafka (?:Streams |Connect )?(\d\S*[\d])", PAGE))
    assert named == {KAFKA_VERSION}
    for package in PYTHON_PACKAGES:
        _, _, version = package.partition("==")
        assert f" {version}" in PAGE
