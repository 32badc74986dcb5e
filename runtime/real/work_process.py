"""The helper process that does long work on files (``storage.long_work``), such as compaction.

One work at a time, with low priority. It ends when its socket does, also in the middle of a work: a
parent that is killed leaves no orphan that still writes. Unlike ``sync_process`` it imports
whatever its work needs.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from runtime.real.answering import Answering, outlive_signals
from runtime.real.disk import RealDisk
from storage.long_work import LongWork, Part, Spent
from storage.steps import Sync

_NICENESS: Final = 10
_NAP_S: Final = 0.1


class _Throttle:
    """Keeps work at the rate that it asks for."""

    def __init__(self, server: Answering) -> None:
        self._server = server
        self._began_s = time.monotonic()

    def wait(self, spent: Spent) -> None:
        """The bytes were spent since the last call: wait until they took as long as they should."""
        end_s = self._began_s + spent.seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _NAP_S))
            self._server.check_parent()
        self._began_s = time.monotonic()


class _Worker:
    def __init__(self, server: Answering) -> None:
        self._server = server
        self._disk = RealDisk(syncs_at_close=True)

    def carry_out(
        self, number: int, work: Callable[..., LongWork], arguments: tuple[Any, ...]
    ) -> None:
        throttle = _Throttle(self._server)
        for step in work(self._disk, *arguments):
            self._server.check_parent()
            match step:
                case Part(value):
                    self._server.send_part(number, value)
                case Spent():
                    throttle.wait(step)
                case Sync(paths):
                    for path in paths:
                        self._disk.sync_now(path)


def main() -> None:
    outlive_signals()
    os.nice(_NICENESS)
    server = Answering(socket.socket(fileno=int(sys.argv[1])))
    server.serve(_Worker(server).carry_out)
    os._exit(0)


if __name__ == "__main__":
    main()
