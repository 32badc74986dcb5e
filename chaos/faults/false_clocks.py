"""Clocks of nodes on this machine that jump, by libfaketime where that is installed.

The library is loaded into the node's process, and reads a file for how far its clock is from the
true one. Only the wall clock jumps, as on a computer whose time is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LIBRARIES: Final = tuple(
    Path(place) / "libfaketimeMT.so.1"
    for place in (
        "/usr/lib/x86_64-linux-gnu/faketime",
        "/usr/lib/aarch64-linux-gnu/faketime",
        "/usr/lib/faketime",
        "/usr/lib64/faketime",
    )
)


def _library() -> Path | None:
    return next((each for each in _LIBRARIES if each.exists()), None)


def unavailable() -> str | None:
    """Why no clock can jump here, or None."""
    return None if _library() else "libfaketime is not installed (Debian: apt install libfaketime)"


class FalseClock:
    """The clock of one process, which is true at first."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self.set(0)

    def set(self, ahead_s: int) -> None:
        """Let it be so far ahead of the true time; below 0: behind."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}s\n")
        new.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """What the process must be started with."""
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
