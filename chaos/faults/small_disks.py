"""Small disks for nodes on this machine, which can be filled: a tmpfs for each data directory.

What is on one is there for as long as it is mounted, so a node that is killed finds its data again.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from stele.errors import SteleError

SIZE_MIB: Final = 64
_BALLAST: Final = "ballast"
_CHUNK: Final = bytes(64 << 10)


def unavailable() -> str | None:
    """Why there can be none here, or None."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "a disk that can be filled is mounted, which needs root"
    return None


class SmallDisk:
    """Mounted at a directory. ``close`` unmounts it, with all that is on it."""

    def __init__(self, directory: Path) -> None:
        """Raises SteleError."""
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "stele-drill", str(directory))

    def fill(self) -> None:
        """Leave no byte."""
        with (self._directory / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(_CHUNK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """Give the room back."""
        (self._directory / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Its processes have ended, or end now: then it is gone. Raises SteleError."""
        _run("umount", "--lazy", str(self._directory))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode != 0:
        raise SteleError(f"{' '.join(command)}: {done.stderr.strip()}")
