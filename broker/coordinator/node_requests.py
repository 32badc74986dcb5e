"""Requests of this broker's coordinators to other brokers, over Kafka's protocol.

One request to a broker is under way at a time. Items that come meanwhile are the next request. So a
slow broker costs neither memory for requests nor a request for each item.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from metadata.image import MetadataImage
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka import Api, Struct
from stele.world import Connector

logger = logging.getLogger(__name__)

T = TypeVar("T")
Q = TypeVar("Q", bound=Struct)
R = TypeVar("R", bound=Struct)


class Nodes(Protocol):
    """The other brokers, to be asked."""

    async def ask(self, broker_id: int, api: Api[Q, R], version: int, request: Q) -> R:
        """Raises ApiError: whether the request took effect is unknown."""
        ...

    def close(self) -> None: ...


class NodeConnections:
    """A connection to each broker that was asked, on the listener on which brokers find another."""

    def __init__(
        self,
        connector: Connector,
        image: Callable[[], MetadataImage],
        *,
        listener: str,
        client_id: str,
        timeout_s: float,
    ) -> None:
        self._connector = connector
        self._image = image
        self._listener = listener
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._open: dict[int, KafkaConnection] = {}

    async def ask(self, broker_id: int, api: Api[Q, R], version: int, request: Q) -> R:
        """Raises ApiError BROKER_NOT_AVAILABLE, NETWORK_EXCEPTION, REQUEST_TIMED_OUT: whether the
        request took effect is unknown."""
        connection = self._open.get(broker_id)
        if connection is None or connection.is_closed:
            connection = self._open[broker_id] = await self._connect(broker_id)
        return await connection.request(api, version, request, timeout_s=self._timeout_s)

    async def _connect(self, broker_id: int) -> KafkaConnection:
        registration = self._image().broker(broker_id)
        endpoint = registration and registration.endpoint(self._listener)
        if not endpoint:
            what = f"broker {broker_id} has no listener {self._listener}"
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, what)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await KafkaConnection.open(
                    self._connector, endpoint.host, endpoint.port, self._client_id
                )
        except OSError as error:  # also TimeoutError
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"{endpoint.host}: {error}") from error

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()


class NodeBatches(Generic[T]):
    """Items on their way to brokers."""

    def __init__(
        self,
        name: str,
        send: Callable[[int, list[T]], Awaitable[list[T]]],
        failed: Callable[[list[T]], None],
    ) -> None:
        """``send`` sends items to a broker, in their order. It settles what was sent, and returns
        the items that were not sent: they come first in the next batch. ``failed`` gets the items
        of a batch whose sending raised, which is a bug."""
        self._name = name
        self._send = send
        self._failed = failed
        self._waiting: dict[int, list[T]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    def add(self, broker_id: int, item: T) -> None:
        self._waiting.setdefault(broker_id, []).append(item)
        if broker_id not in self._senders:
            self._senders[broker_id] = asyncio.get_running_loop().create_task(
                self._run(broker_id), name=f"{self._name}-to-{broker_id}"
            )

    async def _run(self, broker_id: int) -> None:
        try:
            while items := self._waiting.pop(broker_id, None):
                try:
                    rest = await self._send(broker_id, items)
                except Exception:
                    logger.exception("%s for broker %d", self._name, broker_id)
                    self._failed(items)
                    rest = []
                if rest:
                    self._waiting[broker_id] = rest + self._waiting.get(broker_id, [])
        finally:
            del self._senders[broker_id]

    @property
    def waiting(self) -> int:
        """The items that no request has yet."""
        return sum(map(len, self._waiting.values()))

    async def stop(self) -> None:
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
