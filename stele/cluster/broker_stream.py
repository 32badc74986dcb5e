"""One bidirectional stream to one broker. Correlation ids match answers to requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.message import DecodeError

from stele.cluster.plane import UnsentError
from stele.world import Channel, RpcCode, RpcError, Stream

log = logging.getLogger(__name__)


class Correlated(Protocol):
    correlation_id: int


Response = TypeVar("Response", bound=Correlated)
Answer = TypeVar("Answer")


class _Outgoing(NamedTuple):
    correlation_id: int  # -1 if there will be no answer
    message: bytes
    handed_over: asyncio.Future[None] | None


class BrokerStream(Generic[Response, Answer]):
    """A stream that the first request opens. Once it is broken it stays so, and its owner opens
    another.

    ``request`` never waits. Requests leave in the order of the calls. Answers that nobody waits for
    are dropped.
    """

    def __init__(
        self,
        channel: Channel,
        method: str,
        parse: Callable[[bytes], Response],
        decode: Callable[[Response], Answer],
        name: str,
    ) -> None:
        """``decode`` makes of a response what the waiting future gets."""
        self._stream: Stream = channel.stream(method)
        self._parse = parse
        self._decode = decode
        self._name = name
        self._outgoing: deque[_Outgoing] = deque()  # requests not handed to the stream yet
        self._wake = asyncio.Event()
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._next_id = 0
        self._broken: RpcError | None = None
        loop = asyncio.get_running_loop()
        self._writer = loop.create_task(self._write())
        self._reader = loop.create_task(self._read())

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    def next_correlation_id(self) -> int:
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return self._next_id

    def request(self, correlation_id: int, message: bytes) -> asyncio.Future[Answer]:
        """Queue a request. The future gets the answer or an RpcError (UnsentError if it never
        left)."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._broken is not None:
            future.set_exception(UnsentError(self._broken.code, self._broken.detail))
            return future
        self._pending[correlation_id] = future
        self._outgoing.append(_Outgoing(correlation_id, message, None))
        self._wake.set()
        return future

    def post(self, message: bytes) -> asyncio.Future[None]:
        """Queue a request that has no answer. The future is done once it is handed to the
        stream."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._broken is not None:
            future.set_exception(UnsentError(self._broken.code, self._broken.detail))
            return future
        self._outgoing.append(_Outgoing(-1, message, future))
        self._wake.set()
        return future

    def forget(self, correlation_id: int) -> None:
        """Nobody waits for this answer any more."""
        self._pending.pop(correlation_id, None)

    def break_off(self, reason: str) -> None:
        """Give the stream up. Unanswered requests fail. The caller must still await ``close``."""
        self._fail(RpcError(RpcCode.CANCELLED, reason))

    async def close(self) -> None:
        self._fail(RpcError(RpcCode.CANCELLED, "closed by the client"))
        for task in (self._writer, self._reader):
            task.cancel()
        await asyncio.gather(self._writer, self._reader, return_exceptions=True)
        await self._stream.close()

    async def _write(self) -> None:
        try:
            while True:
                while self._outgoing:
                    request = self._outgoing.popleft()
                    await self._stream.send(request.message)
                    if request.handed_over is not None and not request.handed_over.done():
                        request.handed_over.set_result(None)
                self._wake.clear()
                await self._wake.wait()
        except RpcError as error:
            self._fail(error)

    async def _read(self) -> None:
        try:
            while (message := await self._stream.receive()) is not None:
                response = self._parse(message)
                future = self._pending.pop(response.correlation_id, None)
                if future is not None and not future.done():
                    future.set_result(self._decode(response))
            self._fail(RpcError(RpcCode.UNAVAILABLE, "the broker ended the stream"))
        except RpcError as error:
            self._fail(error)
        except DecodeError as error:
            self._fail(RpcError(RpcCode.INTERNAL, f"an answer that cannot be read: {error}"))

    def _fail(self, error: RpcError) -> None:
        if self._broken is not None:
            return
        self._broken = error
        unsent: set[int] = set()
        for request in self._outgoing:
            unsent.add(request.correlation_id)
            if request.handed_over is not None and not request.handed_over.done():
                request.handed_over.set_exception(UnsentError(error.code, error.detail))
        self._outgoing.clear()
        pending, self._pending = self._pending, {}
        if pending:
            log.debug("stream to %s broke with %d unanswered: %s", self._name, len(pending), error)
        for correlation_id, future in pending.items():
            if not future.done():
                kind = UnsentError if correlation_id in unsent else RpcError
                future.set_exception(kind(error.code, error.detail))
