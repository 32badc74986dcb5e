"""One simulated client's own connections to the brokers, which end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TypeVar

from chaos.sim.cluster.cluster import KAFKA_PORT, SimCluster
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ApiError, ErrorCode
from stele.wire import kafka
from stele.wire.kafka.messages import metadata
from stele.world import Connector

Request = TypeVar("Request", bound=kafka.Struct)
Response = TypeVar("Response", bound=kafka.Struct)

_CONNECT_TIMEOUT_S = 2.0


class Connections:
    """Asks brokers over the Kafka protocol, each question once."""

    def __init__(self, network: Connector, hosts: Mapping[int, str], client_id: str) -> None:
        """``hosts``: by broker id."""
        self.brokers = tuple(hosts)
        self._network = network
        self._hosts = hosts
        self._client_id = client_id
        self._open: dict[int, KafkaConnection] = {}

    @classmethod
    def of(cls, cluster: SimCluster, client_id: str) -> Connections:
        hosts = {number: node.host for number, node in cluster.brokers.items()}
        return cls(cluster.client_world.network, hosts, client_id)

    async def ask(
        self,
        broker: int,
        api: kafka.Api[Request, Response],
        message: Request,
        *,
        at_most: int | None = None,
        timeout_s: float = 3.0,
    ) -> Response:
        """Raises ApiError, OSError: there is no answer, and the outcome is unknown."""
        connection = await self._to(broker)
        version = connection.version_of(api, at_most=at_most)
        return await connection.request(api, version, message, timeout_s=timeout_s)

    async def leaders(self, topics: Mapping[str, int], broker: int) -> dict[tuple[str, int], int]:
        """The leaders of these topics' partitions, as one broker knows them. Raises as ``ask``."""
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
        )
        answer = await self.ask(broker, metadata.API, request)
        return {
            (topic.name or "", each.partition_index): each.leader_id
            for topic in answer.topics
            for each in topic.partitions
            if each.leader_id >= 0
        }

    async def topic_ids(self, topics: Iterable[str], broker: int) -> dict[str, bytes]:
        """The ids of these topics, as one broker knows them. Raises as ``ask``."""
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
        )
        answer = await self.ask(broker, metadata.API, request)
        return {
            topic.name or "": bytes(topic.topic_id)
            for topic in answer.topics
            if topic.error_code == ErrorCode.NONE
        }

    def close(self) -> None:
        """As when the client's process dies. The next question opens a connection again."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    async def _to(self, broker: int) -> KafkaConnection:
        connection = self._open.get(broker)
        if connection is not None and not connection.is_closed:
            return connection
        host = self._hosts.get(broker)
        if host is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker}")
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            connection = await KafkaConnection.open(
                self._network, host, KAFKA_PORT, self._client_id
            )
        await connection.negotiate(timeout_s=_CONNECT_TIMEOUT_S)
        self._open[broker] = connection
        return connection
