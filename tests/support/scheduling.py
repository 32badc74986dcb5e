"""How pytest-xdist (``-n 2``) divides the tests among its processes."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_STARTS_PROCESSES = re.compile(r"\bpytest\.mark\.(processes|containers)\b")
_IS_APART = re.compile(r"\bpytest\.mark\.apart\b")


class FilesInGroups(LoadFileScheduling):  # type: ignore[misc]
    """A file is a unit, with two exceptions.

    All files with tests that start processes are one unit together. They share a cluster. Otherwise
    each worker would start its own, and two clusters at a time would compete for cores and memory.
    In a file marked ``apart``, each test is a unit, so that several workers can share a long file.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        # Units run in the order of their collection, so the large one, which takes longest, comes
        # early.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        path = self.config.rootpath / file
        if _has(_STARTS_PROCESSES, path):
            return "processes"
        return nodeid if _has(_IS_APART, path) else file


@functools.cache
def _has(mark: re.Pattern[str], file: Path) -> bool:
    return mark.search(file.read_text()) is not None
