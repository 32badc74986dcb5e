"""The connection over which a broker fetches from one leader."""

from __future__ import annotations

import asyncio

from stele.cluster.kafka_connection import KafkaConnection, PendingAnswer
from stele.wire.kafka.messages import fetch as wire
from stele.world import Connector

FETCH_VERSION = 17
"""Topic ids (13), the broker epoch (15): every broker of the cluster speaks it."""


class LeaderConnection:
    """An open connection to one leader, which carries nothing but fetches."""

    def __init__(self, connection: KafkaConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    @classmethod
    async def open(
        cls, connector: Connector, host: str, port: int, *, client_id: str, timeout_s: float
    ) -> LeaderConnection:
        async with asyncio.timeout(timeout_s):
            connection = await KafkaConnection.open(connector, host, port, client_id)
        return cls(connection, timeout_s)

    def fetch(self, request: wire.FetchRequest, answer: PendingAnswer[wire.FetchResponse]) -> None:
        """Send a request behind those sent before. ``answer`` may get an ApiError: then the
        connection is of no more use. Raises ApiError for the same reason."""
        self._connection.submit_for(
            answer, wire.API, FETCH_VERSION, request, timeout_s=self._timeout_s
        )

    def close(self) -> None:
        self._connection.close()
