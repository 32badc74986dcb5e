"""The helper process that does long work on files (``storage.long_work``), such as compaction.

One work at a time, with low priority. It ends when its socket does, also in the middle of a work: a
parent that is killed leaves no orphan that still writes. Requests and replies are those of
``sync_process``; unlike it this process imports whatever its work needs.
"""

from __future__ import annotations

import errno
import importlib
import marshal
import os
import signal
import socket
import sys
import time
from typing import Any, Final

from runtime.real.disk import RealDisk
from runtime.real.sync_process import LENGTH, PART, receive_request
from storage.long_work import LongWork, Part, Spent
from storage.steps import Sync

_NICENESS: Final = 10
_NAP_S: Final = 0.1


class _Throttle:
    """Keeps work at the rate that it asks for."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._began_s = time.monotonic()

    def wait(self, spent: Spent) -> None:
        """The bytes were spent since the last call: wait until they took as long as they should."""
        end_s = self._began_s + spent.seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _NAP_S))
            self._server.check_parent()
        self._began_s = time.monotonic()


class _Server:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._disk = RealDisk(syncs_at_close=True)

    def serve(self) -> None:
        """Until the parent's end is closed."""
        while (request := receive_request(self._connection)) is not None:
            number, _, module, name, arguments = request
            self._send(self._carry_out(number, module, name, arguments))

    def check_parent(self) -> None:
        """End the process if the parent has closed its end."""
        try:
            ended = not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError:
            ended = True
        if ended:
            os._exit(0)

    def _carry_out(
        self, number: int, module: str, name: str, arguments: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        try:
            work = getattr(importlib.import_module(module), name)(self._disk, *arguments)
            self._run(number, work)
        except OSError as error:
            code = error.errno or errno.EIO
            what = type(error).__name__
            return number, code, error.strerror or str(error), str(error.filename or ""), what
        except MemoryError:
            return number, errno.ENOMEM, "the work process lacks memory", "", ""
        except Exception as error:
            return number, errno.EINVAL, f"{type(error).__name__}: {error}", "", ""
        return number, 0, "", "", ""

    def _run(self, number: int, work: LongWork) -> None:
        throttle = _Throttle(self)
        for step in work:
            self.check_parent()
            match step:
                case Part(value):
                    self._send((number, PART, "", "", "", value))
                case Spent():
                    throttle.wait(step)
                case Sync(paths):
                    for path in paths:
                        self._disk.sync_now(path)

    def _send(self, reply: tuple[Any, ...]) -> None:
        data = marshal.dumps(reply)
        try:
            self._connection.sendall(LENGTH.pack(len(data)) + data)
        except ConnectionError:
            os._exit(0)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    os._exit(0)


if __name__ == "__main__":
    main()
