"""Which tests the processes of pytest-xdist (``-n 2``) take as one piece."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_STARTS_PROCESSES = re.compile(r"\bpytest\.mark\.(processes|containers)\b")


class FilesInGroups(LoadFileScheduling):  # type: ignore[misc]
    """A file is a piece, but for all files with tests that start processes: these are one piece.

    They share a cluster, which each worker would else start for itself, and two clusters at a time
    would take cores and memory from one another.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        # In the order of their collection: the group, which takes longest, comes early.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "processes" if _starts_processes(self.config.rootpath / file) else file


@functools.cache
def _starts_processes(file: Path) -> bool:
    return _STARTS_PROCESSES.search(file.read_text()) is not None
