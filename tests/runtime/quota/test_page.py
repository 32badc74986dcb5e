"""docs/quotas.md names for each of its rules the test or the law that holds it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from chaos.sim.laws.registry import LAWS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/quotas.md"
HEADING = "## Kafka's rules, and what holds them here"


def rows() -> list[str]:
    """The last cell of each row."""
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    cells = [line.split(" | ")[-1] for line in section.splitlines() if line.startswith("| ")]
    return [each for each in cells if not each.startswith("test")]


def test_each_rule_names_a_test_or_a_law_that_exists() -> None:
    found = rows()
    assert len(found) > 40
    laws = {each.__name__ for each in LAWS}
    for cell in found:
        names = re.findall(r"`([^`]+)`", cell)
        assert names, cell
        for name in names:
            path, _, test = name.partition("::")
            if test:
                tree = ast.parse((ROOT / "tests" / path).read_text())
                functions = ast.FunctionDef | ast.AsyncFunctionDef
                assert test in {each.name for each in tree.body if isinstance(each, functions)}
            else:
                assert name in laws
