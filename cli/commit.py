"""The commit of the code that runs, as far as it is known."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from cli.built_from import COMMIT

_ROOT: Final = Path(__file__).resolve().parent.parent
_TIMEOUT_S: Final = 5.0


def known_commit(root: Path = _ROOT) -> str | None:
    """The commit of the build, or else of the checkout. ``-dirty`` follows if its files were
    changed."""
    return COMMIT or commit_of_checkout(root)


def commit_of_checkout(root: Path) -> str | None:
    """None: ``root`` is no checkout, or git cannot say. A folder above it is not asked: the code
    may be installed within a checkout of something else."""
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        told = subprocess.run(
            [*command, "--exclude", "*"],
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None
