"""The open streams of thin clients: how many there may be, and their end when the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from broker.gateway.refusals import stream_error
from stele.errors import ErrorCode
from stele.world import RpcError


class Ending(Protocol):
    """A stream that can be told to end."""

    async def idle(self) -> None:
        """Take nothing new, and wait until the client waits for nothing that will come soon."""
        ...

    async def end(self, why: RpcError) -> None:
        """End at once with this status."""
        ...


class Streams:
    """The open streams of one method."""

    def __init__(self, method: str, limit: int) -> None:
        self._method = method
        self._limit = limit
        self._open: dict[Ending, None] = {}
        self.is_closing = False  # no stream takes anything new

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def admitted(self, stream: Ending) -> Iterator[None]:
        """Count a stream as long as it lasts. Raises RpcError if there are too many, or the broker
        stops."""
        if self.is_closing:
            raise stopping()
        if len(self._open) >= self._limit:
            raise stream_error(
                ErrorCode.POLICY_VIOLATION,
                f"this broker has {self._limit} {self._method} streams, the most that it may have: "
                "use another one",
            )
        self._open[stream] = None
        try:
            yield
        finally:
            del self._open[stream]

    async def close(self, patience_s: float) -> None:
        """End all streams: busy ones when they are idle, but at the latest after ``patience_s``."""
        self.is_closing = True
        try:
            async with asyncio.timeout(patience_s):
                for stream in list(self._open):
                    await stream.idle()
        except TimeoutError:
            pass
        for stream in list(self._open):
            await stream.end(stopping())


def stopping() -> RpcError:
    """The status of streams that end because the broker stops."""
    return stream_error(ErrorCode.BROKER_NOT_AVAILABLE, "this broker stops: use another one")
