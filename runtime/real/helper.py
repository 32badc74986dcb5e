"""The node's end of a helper process: see ``sync_process``."""

from __future__ import annotations

import asyncio
import errno
import logging
import marshal
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from runtime.real import sync_process
from runtime.real.sync_process import LENGTH, PART
from world.disk import ReadFailedError, SyncFailedError

logger = logging.getLogger(__name__)

_ERRORS: Final[dict[str, type[OSError]]] = {
    sync_process.HelperSyncError.__name__: SyncFailedError,
    sync_process.HelperReadError.__name__: ReadFailedError,
    SyncFailedError.__name__: SyncFailedError,
    ReadFailedError.__name__: ReadFailedError,
    FileNotFoundError.__name__: FileNotFoundError,
}
_EXIT_TIMEOUT_S: Final = 10.0
_RECEIVE_BYTES: Final = 65536


class HelperDiedError(OSError):
    """The process is gone: requests under way may be done or not, and later ones never are."""


class _Outgoing:
    """A request on its way, and the handles that go with its first byte."""

    def __init__(self, data: bytes, handles: list[int]) -> None:
        self._data = memoryview(data)
        self._handles = handles

    def send(self, connection: socket.socket) -> bool:
        """Send what there is room for. Returns whether that was all. Raises OSError."""
        if self._handles:
            sent = socket.send_fds(connection, [self._data], self._handles)
        else:
            sent = connection.send(self._data)
        self.close_handles()
        self._data = self._data[sent:]
        return not self._data

    def close_handles(self) -> None:
        while self._handles:
            os.close(self._handles.pop())


class HelperProcess:
    """Started at the first call, or by ``start``.

    If it dies, every call fails with HelperDiedError, then and later on.
    """

    def __init__(
        self, purpose: str, command: Sequence[str] = ("-I", "-S", sync_process.__file__)
    ) -> None:
        """``command``: the interpreter's arguments, before the number of the socket."""
        self._purpose = purpose
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._on_part: dict[int, Callable[[Any], None]] = {}
        self._next_number = 0
        self._outgoing: deque[_Outgoing] = deque()
        self._incoming = bytearray()
        self._dead: str | None = None

    @property
    def pid(self) -> int | None:
        """The process id, once the process was started."""
        return None if self._process is None else self._process.pid

    @property
    def is_dead(self) -> bool:
        return self._dead is not None

    async def call(self, kind: str, *arguments: Any, handle: int | None = None) -> None:
        """Have a request carried out. ``handle`` goes with it, and is closed here: the process
        uses the same open file description. Raises OSError as the process met it,
        HelperDiedError."""
        await self._request(None, kind, *arguments, handle=handle)

    async def call_in_parts(
        self, on_part: Callable[[Any], None], kind: str, *arguments: Any
    ) -> None:
        """As ``call``. ``on_part`` is called with each part of the result."""
        await self._request(on_part, kind, *arguments)

    async def _request(
        self,
        on_part: Callable[[Any], None] | None,
        kind: str,
        *arguments: Any,
        handle: int | None = None,
    ) -> None:
        handles = [] if handle is None else [handle]
        try:
            loop = self._running()
        except BaseException:
            for each in handles:
                os.close(each)
            raise
        number = self._next_number
        self._next_number += 1
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[number] = future
        if on_part is not None:
            self._on_part[number] = on_part
        data = marshal.dumps((number, kind, *arguments))
        self._send(_Outgoing(LENGTH.pack(len(data)) + data, handles))
        try:
            await future
        finally:
            self._waiting.pop(number, None)
            self._on_part.pop(number, None)

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop to which the process belongs. It is started if it was not yet."""
        if self._dead is not None:
            raise HelperDiedError(errno.EIO, self._dead)
        if self._socket is None:
            self.start()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise RuntimeError(f"the {self._purpose} process belongs to another event loop")
        return loop

    def start(self) -> None:
        """Once; needs a running loop. Raises OSError, and may be called again then."""
        ours, theirs = socket.socketpair()
        try:
            # No fork of this process, which may run threads of gRPC; a session of its own, so
            # that Ctrl-C in the terminal does not end it before the node has shut down.
            self._process = subprocess.Popen(
                [sys.executable, *self._command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours, self._on_readable)

    # ------------------------------------------------------------------------------ bytes

    def _send(self, request: _Outgoing) -> None:
        assert self._loop is not None
        assert self._socket is not None
        self._outgoing.append(request)
        if len(self._outgoing) > 1:
            return
        self._write()
        if self._outgoing:
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        assert self._loop is not None
        assert self._socket is not None
        self._write()
        if self._dead is None and not self._outgoing:
            self._loop.remove_writer(self._socket)

    def _write(self) -> None:
        """Send what the socket has room for."""
        assert self._socket is not None
        try:
            while self._outgoing and self._outgoing[0].send(self._socket):
                self._outgoing.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._die(f"the {self._purpose} process is gone: {error}")

    def _on_readable(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            code = None if self._process is None else self._process.poll()
            self._die(f"the {self._purpose} process died (exit code {code})")
            return
        self._incoming += data
        while len(self._incoming) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._incoming)
            end = LENGTH.size + size
            if len(self._incoming) < end:
                return
            reply = marshal.loads(bytes(self._incoming[LENGTH.size : end]))
            del self._incoming[:end]
            self._settle(*reply)

    def _settle(
        self, number: int, code: int, message: str, path: str, what: str, *part: Any
    ) -> None:
        if code == PART:
            if number in self._on_part:
                self._on_part[number](*part)
            return
        future = self._waiting.get(number)
        if future is None or future.done():
            return
        if code == 0:
            future.set_result(None)
        else:
            future.set_exception(_ERRORS.get(what, OSError)(code, message, path or None))

    # ------------------------------------------------------------------------------ end

    def _die(self, reason: str) -> None:
        if self._dead is not None:
            return
        logger.error("%s", reason)
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._dead = reason
        if self._socket is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._socket)
                self._loop.remove_writer(self._socket)
            self._socket.close()
        while self._outgoing:
            self._outgoing.popleft().close_handles()
        for future in self._waiting.values():
            if not future.done() and not future.get_loop().is_closed():
                future.set_exception(HelperDiedError(errno.EIO, reason))
        self._waiting.clear()

    def kill(self) -> None:
        """End the process at once, in the middle of what it does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self.close()

    def close(self) -> None:
        """End the process and wait for it; calls on their way fail. Idempotent."""
        if self._dead is None:
            self._end(f"the {self._purpose} process was closed")
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.wait(_EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                # It hangs in the device; the kernel keeps it until that answers.
                logger.warning("the %s process %d does not end", self._purpose, self._process.pid)
                self._process.kill()
