"""Requests to the owner of a cluster, on a Unix socket in the cluster's directory.

A request is a line of JSON: ``{"request": "restart", "node": "broker-101"}``. The owner answers
with lines: first ``{"accepted": true}``, then ``{"said": …}`` for each step, and at last
``{"done": {…}}`` or ``{"error": …}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cli.output import CommandError
from stele.errors import SteleError

SOCKET_FILE: Final = "dev.sock"
_ACCEPTED_S: Final = 5.0
"""An owner that lives accepts a request at once."""
_STEP_S: Final = 120.0
"""No step of a request takes longer than the start of a node."""
_LAST_ANSWERS_S: Final = 1.0
_LINE_BYTES_MAX: Final = 1 << 16

Say = Callable[[str], None]
Handler = Callable[[dict[str, Any], Say], Awaitable[dict[str, Any]]]


class OwnerSilentError(CommandError):
    """The owner of the cluster does not accept requests."""


@contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The kernel refuses addresses of more than some 100 bytes. A path that goes by an open
    directory is always short enough."""
    if sys.platform != "linux":
        yield str(directory / SOCKET_FILE)
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET_FILE}"
    finally:
        os.close(handle)


# ------------------------------------------------------------------------------ the owner's side


class RequestServer:
    def __init__(self, directory: Path, handle: Handler) -> None:
        self._path = directory / SOCKET_FILE
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen for requests of this user. The caller holds the directory's lock, so a socket
        that is there belongs to an owner that was killed."""
        self.withdraw()
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with _address(self._path.parent) as address:
                listening.bind(address)
            self._server = await asyncio.start_unix_server(
                self._converse, sock=listening, limit=_LINE_BYTES_MAX
            )
        except BaseException:
            listening.close()
            raise
        finally:
            os.umask(before)

    def withdraw(self) -> None:
        """No new requests find their way. Call while the lock is held: afterwards the path may
        belong to the next owner."""
        self._path.unlink(missing_ok=True)

    async def close(self) -> None:
        """The answers of all that was asked are sent first."""
        assert self._server is not None
        self._server.close()
        if self._conversations:
            await asyncio.wait(self._conversations, timeout=_LAST_ANSWERS_S)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        try:
            await _answer(reader, writer, self._handle)
        except ConnectionError:
            pass  # the command was interrupted; what it began goes on
        finally:
            self._conversations.discard(task)
            writer.close()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handler
) -> None:
    def tell(kind: str, what: object) -> None:
        writer.write(json.dumps({kind: what}).encode() + b"\n")

    try:
        request = json.loads(await reader.readline())
    except ValueError:
        return
    tell("accepted", True)
    try:
        tell("done", await handle(request, lambda line: tell("said", line)))
    except (CommandError, SteleError) as error:
        tell("error", str(error))
    await writer.drain()


# ---------------------------------------------------------------------------- the command's side


def ask(directory: Path, request: dict[str, Any], say: Say) -> dict[str, Any]:
    """What the owner has done. Raises CommandError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ACCEPTED_S)
        try:
            with _address(directory) as address:
                connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("r", encoding="utf-8") as lines:
                return _heard(connection, lines, say)
        except TimeoutError:
            raise OwnerSilentError("the process that owns the cluster does not answer") from None
        except OSError as error:
            raise OwnerSilentError(
                f"the process that owns the cluster cannot be asked: {error.strerror}"
            ) from None


def _heard(connection: socket.socket, lines: Iterator[str], say: Say) -> dict[str, Any]:
    for line in lines:
        if not line.endswith("\n"):
            break  # it ended while it wrote
        ((kind, what),) = json.loads(line).items()
        match kind:
            case "accepted":
                connection.settimeout(_STEP_S)
            case "said":
                say(what)
            case "done":
                return dict(what)
            case _:
                raise CommandError(str(what))
    raise CommandError("the process that owns the cluster ended before it had answered")
