"""An earlier version of Stele on this machine, from which a drill upgrades a cluster."""

from __future__ import annotations

import os
import shutil
from typing import Final

VARIABLE: Final = "EARLIER_STELE"
"""Names the ``stele`` command of the earlier version. It has no name of a setting of nodes."""


def command() -> tuple[str] | None:
    """The command, if there is one."""
    found = shutil.which(os.environ.get(VARIABLE, ""))
    return None if found is None else (found,)


def unavailable() -> str | None:
    """Why no cluster can be upgraded here, or None."""
    named = os.environ.get(VARIABLE)
    if not named:
        return f"set {VARIABLE} to the stele command of an earlier version: /opt/earlier/bin/stele"
    return None if command() else f"{VARIABLE}={named} is no command"
