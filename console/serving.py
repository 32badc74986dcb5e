"""The server of a console, until a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette

from console.desk import Desk

_LAST_ANSWERS_S: Final = 5


class ListenError(Exception):
    """The console cannot listen there. ``str()`` is one line that says why."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ListenError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ListenError(f"--host {host!r} is no address: {error.strerror}") from None
    listening = socket.socket(found[0], socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
        listening.listen(100)
    except OSError as error:
        listening.close()
        raise ListenError(
            f"the console cannot listen on {host}:{port}: {error.strerror}; choose another port "
            "with --port"
        ) from None
    return listening


class ConsoleServer(uvicorn.Server):
    """A server that leaves signals to its caller, and ends live answers before it waits for all."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_LAST_ANSWERS_S,
                ws="none",
            )
        )
        desk = app.state.desk
        assert isinstance(desk, Desk)
        self._desk = desk

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._desk.stopping.set()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """The second time: without waiting for answers."""
        self.force_exit = self.should_exit
        self.should_exit = True


async def serve(app: Starlette, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    server = ConsoleServer(app)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    await server.serve([listening])
