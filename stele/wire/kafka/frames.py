"""Divides a byte stream into frames: four size bytes, then that many bytes.

The methods fit ``asyncio.BufferedProtocol``. ``get_buffer`` returns the memory to receive into,
``received`` says how much came, ``next_frame`` returns complete frames. Small frames arrive many at
a time in one chunk and are copied out of it. The rest of a large frame is received in place. A
frame's ``bytearray`` is new and never used again here, so views of it stay valid.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from stele.wire.kafka.codec import SIZE_BYTES
from stele.wire.kafka.primitives import MalformedMessageError

_SIZE = struct.Struct(">i")
_KEY = struct.Struct(">h")
_HTTP_ANSWER: Final = int.from_bytes(b"HTTP")
_HTTP_REQUESTS: Final = frozenset(
    int.from_bytes(verb) for verb in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN", b"PRI ")
)
_TLS: Final = (0x1603, 0x1503)  # a client's first message, and a server's alert

CHUNK_BYTES: Final = 32 * 1024
GROWTH_BYTES: Final = 1024 * 1024
"""A larger frame gets its memory as it arrives, so that a peer cannot use memory by announcing a
size."""


class FrameSizeError(MalformedMessageError):
    """A frame announces a size that is negative or above the maximum."""


class ForeignProtocolError(MalformedMessageError):
    """The peer speaks another protocol."""


class FrameReader:
    """The receiving half of a connection."""

    __slots__ = (
        "_chunk",
        "_end",
        "_filled",
        "_frame",
        "_frame_size",
        "_max_bytes_of",
        "_start",
        "held_bytes",
        "max_bytes",
    )

    def __init__(
        self, max_bytes: int, max_bytes_of: Callable[[int, int], int] | None = None
    ) -> None:
        """``max_bytes_of``: for frames that begin with an API key, the maximum by API key and
        ``max_bytes``. It is called only for large frames."""
        self.max_bytes = max_bytes  # of the frames that are announced from now on
        self._max_bytes_of = max_bytes_of
        self._chunk = bytearray(CHUNK_BYTES)
        # The bytes [start, end) of the chunk were received and not returned yet. While a large
        # frame is open there are none: everything that arrives belongs to the frame.
        self._start = 0
        self._end = 0
        self._frame: bytearray | None = None  # grows to frame_size bytes
        self._frame_size = 0
        self._filled = 0
        self.held_bytes = 0
        """The memory of a large frame that is not complete yet."""

    @property
    def has_partial(self) -> bool:
        """Whether a frame has begun and is not complete: the end of the stream would cut it off."""
        return self._frame is not None or self._end > self._start

    @property
    def has_frame(self) -> bool:
        """Whether ``next_frame`` would return a frame, or raise an error."""
        if self._frame is not None:
            return self._filled == self._frame_size
        available = self._end - self._start - SIZE_BYTES
        if available < 0:
            return False
        (size,) = _SIZE.unpack_from(self._chunk, self._start)
        return bool(size <= available or not 0 <= size <= self.max_bytes)

    @property
    def has_room(self) -> bool:
        """Whether more may be received before ``next_frame`` is called."""
        if self._frame is not None:
            return self._filled < self._frame_size
        return self._end - self._start < len(self._chunk)

    def peek(self, size: int) -> bytes:
        """The first bytes of the frame that ``next_frame`` would return, and at most ``size``."""
        if self._frame is not None:
            return bytes(self._frame[:size])
        start = self._start + SIZE_BYTES
        if start > self._end:
            return b""
        (frame_size,) = _SIZE.unpack_from(self._chunk, self._start)
        return bytes(self._chunk[start : min(start + min(size, frame_size), self._end)])

    def get_buffer(self) -> memoryview:
        """The memory to receive into. It is never empty if ``next_frame`` is called until None."""
        frame = self._frame
        if frame is not None:
            if self._filled == len(frame):
                frame.extend(bytes(min(self._frame_size - len(frame), len(frame))))
                self.held_bytes = len(frame)
            return memoryview(frame)[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._chunk):
            rest = self._chunk[self._start : self._end]
            self._chunk[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return memoryview(self._chunk)[self._end :]

    def received(self, size: int) -> None:
        """``size`` bytes were written to the buffer that ``get_buffer`` returned."""
        if self._frame is not None:
            self._filled += size
        else:
            self._end += size

    def _check_protocol(self, size: int) -> None:
        """A size that cannot be one may be the first bytes of another protocol."""
        if size == _HTTP_ANSWER:
            raise ForeignProtocolError(
                "the peer speaks HTTP: is this the port of a node's metrics?"
            )
        if size in _HTTP_REQUESTS:
            raise ForeignProtocolError(
                "the peer speaks HTTP, and this port speaks Kafka's protocol"
            )
        if size >> 16 in _TLS:
            raise ForeignProtocolError(
                "the peer speaks TLS, and this end speaks plaintext: security.protocol in the "
                "client must be the security protocol of the listener"
            )

    def next_frame(self) -> bytearray | None:
        """The next whole frame without its size bytes; None until more is received.

        Raises FrameSizeError for a size that is negative or above the maximum, and
        ForeignProtocolError if it looks like another protocol. Then the rest of the
        stream cannot be understood.
        """
        if self._frame is not None:
            if self._filled < self._frame_size:
                return None
            frame, self._frame = self._frame, None
            self.held_bytes = 0
            return frame
        available = self._end - self._start - SIZE_BYTES
        if available < 0:
            return None
        (size,) = _SIZE.unpack_from(self._chunk, self._start)
        if not 0 <= size <= self.max_bytes:
            self._check_protocol(size)
            raise FrameSizeError(f"a frame of {size} bytes, at most {self.max_bytes}")
        start = self._start + SIZE_BYTES
        if size > GROWTH_BYTES and self._max_bytes_of is not None:
            if available < _KEY.size:
                return None
            (key,) = _KEY.unpack_from(self._chunk, start)
            allowed = self._max_bytes_of(key, self.max_bytes)
            if size > allowed:
                raise FrameSizeError(f"a frame of {size} bytes of API key {key}, at most {allowed}")
        if available >= size:
            self._start = start + size
            return self._chunk[start : self._start]
        self.held_bytes = min(size, max(GROWTH_BYTES, available))
        self._frame = bytearray(self.held_bytes)
        self._frame[:available] = self._chunk[start : self._end]
        self._frame_size, self._filled = size, available
        self._start = self._end = 0
        return None
