"""The helper process's end of calls that have a result: see ``helper``.

A process answers one request after the other. It ends when its socket does, also in the middle of a
work: a parent that is killed leaves no orphan. Requests and replies are those of ``sync_process``.
"""

from __future__ import annotations

import errno
import importlib
import marshal
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from runtime.real.sync_process import LENGTH, PART, receive_request


class Answering:
    """Takes requests that name a function of a module, and sends replies."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def serve(self, carry_out: Callable[[int, Callable[..., Any], tuple[Any, ...]], None]) -> None:
        """Until the parent's end is closed. ``carry_out`` gets the number of the request, the
        function and its arguments."""
        while (request := receive_request(self._connection)) is not None:
            number, _, module, name, arguments = request
            try:
                carry_out(number, getattr(importlib.import_module(module), name), arguments)
                reply: tuple[Any, ...] = (number, 0, "", "", "")
            except OSError as error:
                code = error.errno or errno.EIO
                what = type(error).__name__
                words = error.strerror or str(error)
                reply = (number, code, words, str(error.filename or ""), what)
            except MemoryError:
                reply = (number, errno.ENOMEM, "the helper process lacks memory", "", "")
            except Exception as error:
                reply = (number, errno.EINVAL, f"{type(error).__name__}: {error}", "", "")
            self._send(reply)

    def send_part(self, number: int, value: Any) -> None:
        """A part of the result of a request is ready."""
        self._send((number, PART, "", "", "", value))

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

    def _send(self, reply: tuple[Any, ...]) -> None:
        data = marshal.dumps(reply)
        try:
            self._connection.sendall(LENGTH.pack(len(data)) + data)
        except ConnectionError:
            os._exit(0)


def outlive_signals() -> None:
    """A signal to the whole group is the parent's business, which ends its helpers itself."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
