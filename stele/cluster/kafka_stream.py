"""Requests to a leader over Kafka connections of their own.

A connection answers in the order of its requests, and a Fetch may wait for records. So a stream of
Fetches spreads over several connections: one that waits for news of some partitions does not delay
the records of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from stele.cluster.kafka_connection import ConnectionLostError, KafkaConnection
from stele.cluster.kafka_link import KafkaLink, unanswered
from stele.cluster.messages import UnsentError
from stele.errors import ApiError
from stele.wire import kafka
from stele.world import RpcCode, RpcError

MAX_FETCH_CONNECTIONS: Final = 4

_NO_DEADLINE_S: Final = 24 * 3600.0
"""The owner of a stream knows when an answer is overdue, and breaks the stream off."""

RequestT = TypeVar("RequestT")
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
PartT = TypeVar("PartT")
PartT_co = TypeVar("PartT_co", covariant=True)


class Encoded(NamedTuple):
    api: kafka.Api[Any, Any]
    version: int
    message: kafka.Struct


class Codec(Protocol[RequestT_contra, PartT_co]):
    """Requests and answers of one kind."""

    def encode(self, request: RequestT_contra, connection: KafkaConnection) -> Encoded:
        """Raises ApiError UNSUPPORTED_VERSION."""
        ...

    def decode(self, request: RequestT_contra, response: Any) -> Sequence[PartT_co]:
        """The answers to a request, whose partitions are named as in the request."""
        ...


class _Waiting(NamedTuple, Generic[RequestT, PartT]):
    """A request before the connection is open. One of the futures is set."""

    request: RequestT
    answer: asyncio.Future[Sequence[PartT]] | None
    handed_over: asyncio.Future[None] | None


class KafkaStream(Generic[RequestT, PartT]):
    """A ``LeaderStream`` over one connection."""

    def __init__(self, link: KafkaLink, codec: Codec[RequestT, PartT]) -> None:
        self._link = link
        self._codec = codec
        self._connection: KafkaConnection | None = None  # None until it is open
        self._waiting: list[_Waiting[RequestT, PartT]] = []
        self._broken: RpcError | None = None
        self.in_flight = 0  # the number of requests without an answer
        self._throttle_s = 0.0  # that its answers have asked for
        self._life = asyncio.get_running_loop().create_task(self._live())

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    def request(self, request: RequestT) -> asyncio.Future[Sequence[PartT]]:
        answer: asyncio.Future[Sequence[PartT]] = asyncio.get_running_loop().create_future()
        self.in_flight += 1
        answer.add_done_callback(self._on_done)
        self._take(_Waiting(request, answer, None))
        return answer

    def post(self, request: RequestT) -> asyncio.Future[None]:
        handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._take(_Waiting(request, None, handed_over))
        return handed_over

    def take_throttle_s(self) -> float:
        throttle_s, self._throttle_s = self._throttle_s, 0.0
        return throttle_s

    def break_off(self, reason: str) -> None:
        self._fail(RpcError(RpcCode.CANCELLED, reason))

    async def close(self) -> None:
        self._fail(RpcError(RpcCode.CANCELLED, "closed by the client"))
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)

    async def _live(self) -> None:
        try:
            connection = await self._link.open()
        except RpcError as error:
            self._fail(error)
            return
        if self._broken is not None:
            connection.close()
            return
        self._connection = connection
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._take(each)
        try:
            await connection.wait_closed()
        finally:
            connection.close()
            self._fail(RpcError(RpcCode.UNAVAILABLE, "the broker closed the connection"))

    def _take(self, waiting: _Waiting[RequestT, PartT]) -> None:
        if self._broken is not None:
            _fail(waiting, UnsentError(self._broken.code, self._broken.detail))
        elif self._connection is None:
            self._waiting.append(waiting)
        else:
            self._send(waiting, self._connection)

    def _send(self, waiting: _Waiting[RequestT, PartT], connection: KafkaConnection) -> None:
        request, answer, handed_over = waiting
        try:
            encoded = self._codec.encode(request, connection)
            if answer is not None:
                told = connection.submit(*encoded, timeout_s=_NO_DEADLINE_S)
                told.add_done_callback(partial(self._answered, request, answer))
            elif handed_over is not None:
                connection.post(*encoded).add_done_callback(partial(_handed_over, handed_over))
        except ConnectionLostError as error:
            _fail(waiting, UnsentError(RpcCode.UNAVAILABLE, error.message))
        except ApiError as error:
            _fail(waiting, UnsentError(RpcCode.UNIMPLEMENTED, error.message))

    def _answered(
        self,
        request: RequestT,
        answer: asyncio.Future[Sequence[PartT]],
        told: asyncio.Future[Any],
    ) -> None:
        error = told.exception()
        if answer.done():
            return
        if error is None:
            message = told.result()
            self._throttle_s = max(self._throttle_s, message.throttle_time_ms / 1000)
            answer.set_result(self._codec.decode(request, message))
        elif self._broken is not None:  # it knows the reason
            answer.set_exception(RpcError(self._broken.code, self._broken.detail))
        else:
            answer.set_exception(unanswered(error) if isinstance(error, ApiError) else error)

    def _on_done(self, answer: asyncio.Future[Sequence[PartT]]) -> None:
        self.in_flight -= 1

    def _fail(self, error: RpcError) -> None:
        if self._broken is not None:
            return
        self._broken = error
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            _fail(each, UnsentError(error.code, error.detail))
        if self._connection is not None:
            self._connection.close()  # its unanswered requests fail


class SpreadStream(Generic[RequestT, PartT]):
    """A ``LeaderStream`` that does not keep the order of its requests. If one of its connections
    breaks, it is broken."""

    def __init__(self, open_stream: Callable[[], KafkaStream[RequestT, PartT]], most: int) -> None:
        """``most``: the number of its connections at most."""
        self._open_stream = open_stream
        self._most = most
        self._streams: list[KafkaStream[RequestT, PartT]] = []

    def request(self, request: RequestT) -> asyncio.Future[Sequence[PartT]]:
        return self._choose().request(request)

    def post(self, request: RequestT) -> asyncio.Future[None]:
        return self._choose().post(request)

    def take_throttle_s(self) -> float:
        return max((stream.take_throttle_s() for stream in self._streams), default=0.0)

    def break_off(self, reason: str) -> None:
        for stream in self._streams:
            stream.break_off(reason)

    async def close(self) -> None:
        for stream in self._streams:
            await stream.close()

    def _choose(self) -> KafkaStream[RequestT, PartT]:
        """A free connection, or a new one while there may be more."""
        for stream in self._streams:
            if stream.is_broken or not stream.in_flight:
                return stream
        if len(self._streams) < self._most:
            self._streams.append(self._open_stream())
            return self._streams[-1]
        return min(self._streams, key=lambda stream: stream.in_flight)


def _handed_over(handed_over: asyncio.Future[None], room: asyncio.Future[None]) -> None:
    error = room.exception()
    if handed_over.done():
        return
    if error is None:
        handed_over.set_result(None)
    else:
        handed_over.set_exception(unanswered(error) if isinstance(error, ApiError) else error)


def _fail(waiting: _Waiting[Any, Any], error: RpcError) -> None:
    for future in (waiting.answer, waiting.handed_over):
        if future is not None and not future.done():
            future.set_exception(error)
