"""Golden interaction scripts: ``testdata/*.txt``, run again, must print what they contain.

To accept a change of behaviour: ``STELE_REWRITE=1 pytest tests/raft/test_scripts.py``, then read
the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.raft_script import Script

SCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    recorded = path.read_text()
    printed = Script().run(recorded)
    if os.environ.get("STELE_REWRITE"):
        path.write_text(printed)
    assert printed == recorded or os.environ.get("STELE_REWRITE")


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 17
