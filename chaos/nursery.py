"""Node processes that begin with everything imported.

A node needs most of a second to import its code. A nursery is one process that has done so, and
forks a node when it is asked to. The nodes share its memory as far as they do not write to it. This
process keeps one nursery, from its first node on. It ends when this process does, however that
happens, and its nodes end with it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

NURSERY: Final = (sys.executable, "-m", "cli.nursery")
_ENDED: Final = signal.SIGKILL  # what ends the nodes of a nursery that has ended


class NurseryEndedError(OSError):
    """The nursery is gone, and this node was not started."""


class ForkedProcess:
    """A node of a nursery: as much of ``subprocess.Popen`` as is used of it.

    The nursery says on a pipe which process it is, and how that has ended.
    """

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._buffer = b""
        self.returncode: int | None = None
        first = self._line(None)
        if first is None:
            os.close(answers)
            raise NurseryEndedError("the nursery of the nodes has ended")
        self.pid: Final = first

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal; None: it runs."""
        if self.returncode is None:
            self._hear(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None and not self._hear(timeout):
            raise subprocess.TimeoutExpired(NURSERY, timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To no effect if it has ended. The nursery reaps it, and may have done so although it has
        not said so yet."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _hear(self, timeout_s: float | None) -> bool:
        """Wait for the end. Whether it has come."""
        if not select.select([self._answers], [], [], timeout_s)[0]:
            return False
        code = self._line(-_ENDED)
        self.returncode = code
        os.close(self._answers)
        return True

    def _line(self, default: int | None) -> int | None:
        """The number that the nursery says next; ``default``: it has ended."""
        while b"\n" not in self._buffer:
            data = os.read(self._answers, 64)
            if not data:
                return default
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return int(line)


class _Nursery:
    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                NURSERY,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """Its nodes end with it."""
        self._orders.close()
        self._process.wait()

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: int
    ) -> ForkedProcess:
        """Raises OSError."""
        order = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": os.getcwd(),
            "parent": self._process.pid,
        }
        answers, theirs = os.pipe()
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [log, theirs])
        except OSError:
            os.close(answers)
            raise
        finally:
            os.close(theirs)
        return ForkedProcess(answers)


_nurseries: Final[dict[int, _Nursery]] = {}
"""By the process that began it: a process that was forked from that one begins its own."""


def fork_command(
    arguments: Sequence[str], environment: Mapping[str, str], log: int
) -> ForkedProcess:
    """Run ``stele`` with these arguments in a process and session of its own.
    ``--exit-with-parent`` and the parent's process id are added. Its output goes to the file
    ``log``. Raises OSError."""
    owner = os.getpid()
    nursery = _nurseries.get(owner)
    if nursery is None or nursery.has_ended:
        nursery = _nurseries[owner] = _Nursery()
        atexit.register(nursery.close)
    return nursery.fork(arguments, environment, log)
