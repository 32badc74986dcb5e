"""Kafka connections to the other brokers, for single requests."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from broker.service.context import BrokerContext
from stele.cluster.kafka_connection import ConnectionLostError, KafkaConnection
from stele.errors import ApiError, SteleError
from stele.wire import kafka
from stele.world import Connector

_OPEN_S: Final = 5.0
_LANES: Final = 4
"""The connections to one broker. A connection answers in the order of its requests. So a partition
whose followers are slow delays the answers for some other partitions, not for all."""

Request = TypeVar("Request", bound=kafka.Struct)
Response = TypeVar("Response", bound=kafka.Struct)


class UnansweredError(SteleError):
    """There was no answer. ``maybe_taken``: the request may have been carried out, or may still
    be."""

    def __init__(self, message: str, *, maybe_taken: bool) -> None:
        super().__init__(message)
        self.maybe_taken = maybe_taken


class Peers:
    """Connections are opened when they are needed, and again after a loss."""

    def __init__(self, context: BrokerContext, connector: Connector, client_id: str) -> None:
        self._context = context
        self._connector = connector
        self._client_id = client_id
        # By broker and lane. The locks let all requests share one connection.
        self._connections: dict[tuple[int, int], KafkaConnection] = {}
        self._opening: dict[tuple[int, int], asyncio.Lock] = {}
        self._is_closed = False

    async def submit(
        self,
        broker_id: int,
        api: kafka.Api[Request, Response],
        message: Request,
        *,
        timeout_s: float,
        lane: int,
    ) -> asyncio.Future[Response]:
        """Send a request. Of any ``lane``, requests leave in the order of the calls. The future
        gets the answer, or ApiError if there is none. Raises UnansweredError if it was not sent."""
        where = (broker_id, lane % _LANES)
        connection = self._connections.get(where)
        if connection is None or connection.is_closed:
            connection = await self._opened(where)
        try:
            return connection.submit(api, connection.version_of(api), message, timeout_s=timeout_s)
        except ApiError as error:
            raise UnansweredError(error.message, maybe_taken=False) from error

    async def close(self) -> None:
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()

    async def _opened(self, where: tuple[int, int]) -> KafkaConnection:
        broker_id, _ = where
        opening = self._opening.setdefault(where, asyncio.Lock())
        try:
            async with asyncio.timeout(_OPEN_S), opening:
                connection = self._connections.get(where)
                if connection is None or connection.is_closed:
                    connection = self._connections[where] = await self._open(broker_id)
                return connection
        except (OSError, SteleError) as error:  # TimeoutError is an OSError
            reason = str(error) or f"no answer within {_OPEN_S:g} s"
            raise UnansweredError(f"broker {broker_id}: {reason}", maybe_taken=False) from error

    async def _open(self, broker_id: int) -> KafkaConnection:
        registration = self._context.image().broker(broker_id)
        endpoint = registration and registration.endpoint(
            registration.inter_broker_listener or self._context.config.inter_broker_listener_name
        )
        if not endpoint:
            raise UnansweredError("it has no address for brokers", maybe_taken=False)
        connection = await KafkaConnection.open(
            self._connector, endpoint.host, endpoint.port, self._client_id
        )
        try:
            await connection.negotiate(timeout_s=_OPEN_S)
            if self._is_closed:
                raise ConnectionLostError("this broker stops")
        except BaseException:
            connection.close()
            raise
        return connection
