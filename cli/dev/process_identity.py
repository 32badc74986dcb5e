"""Which process a number means: the number of a process that has ended is given to another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_IS_LINUX: Final = sys.platform == "linux"
_STATE, _START_TICKS = 0, 19
"""Their places among the fields of ``/proc/PID/stat`` after the name, which is in parentheses."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    pid: int
    started: str
    """When it began. On Linux also the boot, from which the time of the beginning counts."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """None: there is no such process, or nothing but its exit code is left of it."""
        started = _started_on_linux(pid) if _IS_LINUX else _started_by_ps(pid)
        return None if started is None else cls(pid, started)

    def is_alive(self) -> bool:
        return ProcessIdentity.of(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Whether this very process got the signal. Raises PermissionError."""
        if not _IS_LINUX:
            return self._send_after_a_look(number)
        try:
            handle = os.pidfd_open(self.pid)  # stays the same process, whatever ends meanwhile
        except ProcessLookupError:
            return False
        try:
            if not self.is_alive():
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def _send_after_a_look(self, number: signal.Signals) -> bool:
        if not self.is_alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def _started_on_linux(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in "ZX" else f"{boot} {fields[_START_TICKS]}"


def _started_by_ps(pid: int) -> str | None:
    told = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], check=False, capture_output=True, text=True
    )
    state, _, started = told.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
