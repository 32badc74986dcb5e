"""The clients of ``bench connections``: they connect again and again.

One kind closes a connection after the answer to its first request. The other expects to be
disconnected without an answer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import Any, Final

from stele.wire import kafka
from stele.wire.kafka.messages import api_versions

Answer = dict[str, float]

_TIMEOUT_S: Final = 30.0
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_CHUNK: Final = 4096

FIRST_REQUEST: Final = b"".join(
    kafka.encode_request(api_versions.API, 0, 1, "bench", api_versions.ApiVersionsRequest())
)


async def connect(port: int) -> socket.socket:
    """A connection that is reset when it is closed.

    Otherwise each of them would occupy a port for a minute, and there are only some 28,000.
    """
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    try:
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    except BaseException:
        connection.close()
        raise
    return connection


async def ask(connection: socket.socket) -> bool:
    """Send a request and take its answer. False: the connection is closed without an answer."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(connection, FIRST_REQUEST)
        received = await loop.sock_recv(connection, _CHUNK)
        missing = int.from_bytes(received[:4], "big") + 4 - len(received)
        while received and missing > 0:
            received = await loop.sock_recv(connection, _CHUNK)
            missing -= len(received)
    except ConnectionError:
        return False
    return bool(received)


class Connecting:
    """Workers that connect, send one request and disconnect, over and over."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._port: int = job["port"]
        self._workers: int = job["workers"]
        self._answered = 0
        self._closed = 0

    async def throughput(self, seconds: float) -> Answer:
        """Connect for so long. ``answered`` and ``closed`` count connections."""
        self._answered = self._closed = 0
        began = time.perf_counter()
        until = began + seconds
        async with asyncio.timeout(seconds + _TIMEOUT_S):
            await asyncio.gather(*(self._work(until) for _ in range(self._workers)))
        spent = time.perf_counter() - began
        return {"answered": self._answered, "closed": self._closed, "seconds": spent}

    async def _work(self, until: float) -> None:
        while time.perf_counter() < until:
            connection = await connect(self._port)
            try:
                if await ask(connection):
                    self._answered += 1
                else:
                    self._closed += 1
            finally:
                connection.close()


KINDS: Final = {"connecting": Connecting}
