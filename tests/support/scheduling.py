"""How pytest-xdist (``-n 2``) divides the tests among its processes."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_STARTS_PROCESSES = re.compile(r"\bpytest\.mark\.(processes|containers)\b")
_SHARES_A_CLUSTER = re.compile(r"\b(process_cluster|bootstrap|create_topic|spark): ")
_IS_APART = re.compile(r"\bpytest\.mark\.apart\b")


class FilesInGroups(LoadFileScheduling):  # type: ignore[misc]
    """A file is a unit, with three exceptions.

    All files that use the cluster of ``tests/conftest.py`` or Spark are one unit together.
    Otherwise each worker would start its own.
    All other files with tests that start processes are one unit, too. So two clusters run at a
    time, and no more: most of these tests wait, and a third one would take the cores of the tests
    that compute.
    In a file marked ``apart``, each test is a unit, so that several workers can share a long file.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        # Units run in the order of their collection, so the two large ones come early.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid, self.config.rootpath)


def unit_of(nodeid: str, root: Path) -> str:
    """The name of the unit to which a test belongs."""
    file = nodeid.partition("::")[0]
    path = root / file
    if _has(_STARTS_PROCESSES, path):
        return "shared cluster" if _has(_SHARES_A_CLUSTER, path) else "own processes"
    return nodeid if _has(_IS_APART, path) else file


def workers(cores: int) -> int:
    """The number of processes for ``-n auto``. Tests that start nodes wait half of their time for
    them, so one process more than there are cores keeps the cores busy."""
    return cores + 1


@functools.cache
def _has(mark: re.Pattern[str], file: Path) -> bool:
    return mark.search(file.read_text()) is not None
