"""A follower's half of a fetch session, and the requests that it has under way.

The leader's half is in ``broker.replication.fetch_session``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from broker.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID
from broker.replication.leader_connection import LeaderConnection
from stele.wire.kafka.messages import fetch as wire


class SentFetch:
    """A request that was sent: the ``Outcome`` of its answer."""

    __slots__ = ("_heard", "error", "number", "response")

    def __init__(self, number: int, heard: Callable[[], None]) -> None:
        self.number = number
        self.response: wire.FetchResponse | None = None
        self.error: Exception | None = None
        self._heard = heard

    def done(self) -> bool:
        return self.response is not None or self.error is not None

    def set_result(self, result: wire.FetchResponse, /) -> None:
        self.response = result
        self._heard()

    def set_exception(self, exception: Exception, /) -> None:
        self.error = exception
        self._heard()


class FetcherSession:
    """The client's half of one fetch session, which lives as long as its connection."""

    def __init__(self, connection: LeaderConnection) -> None:
        self.connection = connection
        self.id = INVALID_SESSION_ID
        self.epoch = INITIAL_EPOCH
        self.in_flight: deque[SentFetch] = deque()  # oldest first
        self.sent = 0
        # Whether records or starts are being made durable. No answer is taken meanwhile, and
        # nothing is sent.
        self.is_busy = False
        self.unflushed = 0  # directories whose flush is under way
        self.starts: asyncio.Task[None] | None = None  # writes log starts and dropped ends
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        return self.failure.done()

    def fail(self, error: Exception) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)

    async def end(self) -> None:
        if not self.failure.cancel() and not self.failure.cancelled():
            # known: the caller that waits for it may have been cancelled itself
            self.failure.exception()
        self.connection.close()
        if self.starts is not None:
            self.starts.cancel()
            await asyncio.gather(self.starts, return_exceptions=True)
