"""A byte connection within one process: two protocols, and no socket between them.

A broker that is its own client would otherwise have the system copy every byte to itself. What is
written is handed to the peer in later turns of the event loop, as bytes of a socket are. So neither
side is called from within its own call, and no turn copies more than ``TURN_BYTES`` and a chunk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from runtime.authorization.caller import NODE_ITSELF
from stele.world import Buffer

logger = logging.getLogger(__name__)

TURN_BYTES: Final = 256 * 1024
_HIGH_WATER_BYTES: Final = 64 * 1024


class InProcessTransport(asyncio.Transport):
    """One end. Written buffers must not change before they are handed over."""

    def __init__(self, protocol: asyncio.BufferedProtocol, peername: tuple[str, int]) -> None:
        # A caller in the same process need not prove its identity.
        super().__init__({"peername": peername, "principal": NODE_ITSELF, "is_in_process": True})
        self._protocol: Any = protocol
        self._peer: InProcessTransport  # set by `join`
        self._loop = asyncio.get_running_loop()
        self._unread: deque[memoryview] = deque()  # written by the peer
        self._unread_bytes = 0
        self._is_paused = False  # reads nothing
        self._is_scheduled = False
        self._is_closing = False
        self._is_lost = False  # the protocol has heard of the end
        self._has_eof = False  # the peer writes no more
        self._high_bytes = _HIGH_WATER_BYTES
        self._writing_is_paused = False

    def join(self, peer: InProcessTransport) -> None:
        """This is the other end."""
        self._peer = peer

    # ------------------------------------------------------------------------- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        peer = self._peer
        for data in list_of_data:
            if len(data):
                peer.take(memoryview(data).cast("B"))
        self._pause_writing_if_full()

    def get_write_buffer_size(self) -> int:
        return self._peer.unread_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = _HIGH_WATER_BYTES if high is None else high
        self._pause_writing_if_full()

    @property
    def unread_bytes(self) -> int:
        """How much of what the peer has written is not read yet."""
        return self._unread_bytes

    def _pause_writing_if_full(self) -> None:
        if not self._writing_is_paused and self.get_write_buffer_size() > self._high_bytes:
            self._writing_is_paused = True
            self._protocol.pause_writing()

    def taken(self) -> None:
        """For the other end, which has read something."""
        if self._writing_is_paused and self.get_write_buffer_size() <= self._high_bytes // 4:
            self._writing_is_paused = False
            if not self._is_lost:
                self._protocol.resume_writing()

    # ------------------------------------------------------------------------- reading

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._schedule()

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def take(self, data: memoryview) -> None:
        """For the other end, which has written this."""
        if self._is_closing:
            return
        self._unread.append(data)
        self._unread_bytes += len(data)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_lost and (self._unread or self._has_eof):
            self._is_scheduled = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._is_scheduled = False
        try:
            self._hand_over_some()
        except Exception:  # as with a socket: a protocol that fails loses its connection
            logger.exception("a connection within the process ends")
            self.abort()

    def _hand_over_some(self) -> None:
        left = TURN_BYTES
        while self._unread and left > 0 and not self._is_paused and not self._is_closing:
            data = self._unread[0]
            room = self._protocol.get_buffer(len(data))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            del room  # the protocol may resize what it is a view of
            self._unread_bytes -= size
            left -= size
            if size == len(data):
                self._unread.popleft()
            else:
                self._unread[0] = data[size:]
            self._protocol.buffer_updated(size)
        self._peer.taken()
        if not self._unread and self._has_eof:
            self.abort()
        elif not self._is_paused:
            self._schedule()

    # --------------------------------------------------------------------------- end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """The peer reads what was written, and then hears of the end."""
        if not self._is_closing:
            self._end(self._peer.hear_end)

    def abort(self) -> None:
        """What the peer has not read is lost."""
        if not self._is_closing:
            self._end(self._peer.break_off)

    def _end(self, tell_peer: Callable[[], None]) -> None:
        self._is_closing = True
        self._unread.clear()
        self._unread_bytes = 0
        self._loop.call_soon(self._lose)
        self._loop.call_soon(tell_peer)

    def hear_end(self) -> None:
        """For the other end, which writes no more."""
        self._has_eof = True
        self._schedule()

    def break_off(self) -> None:
        """For the other end, which was aborted."""
        if not self._is_closing:
            self._is_closing = True
            self._unread.clear()
            self._unread_bytes = 0
            self._lose()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._protocol.connection_lost(None)


def connect(
    client: asyncio.BufferedProtocol, server: asyncio.BufferedProtocol, host: str, port: int
) -> InProcessTransport:
    """Connect the two. ``host`` and ``port``: by which each is known to the other. Returns the
    client's end."""
    mine, other = (InProcessTransport(each, (host, port)) for each in (client, server))
    mine.join(other)
    other.join(mine)
    server.connection_made(other)
    client.connection_made(mine)
    return mine
