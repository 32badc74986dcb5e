"""Connections of the gateway's clients: to this broker without a socket, to others by the network.

A consumer or a transactional producer of the gateway asks leaders and coordinators over Kafka's
protocol. Where this broker is the one that is asked, the connection ends in its own request
handlers (``runtime.kafka.in_process``). Leadership may move to and fro, and the client does not
notice: it opens a connection to another address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.service.context import BrokerContext
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.in_process import connect
from stele.addresses import Address
from stele.world import Channel, Connector, PortFacts


class OwnBroker:
    """A ``Connector`` that knows the address of its own broker."""

    def __init__(
        self,
        context: BrokerContext,
        connector: Connector,
        accept: Callable[[str], KafkaServerProtocol],
    ) -> None:
        """``accept`` makes the server's side of a connection to a listener of this name."""
        self._context = context
        self._connector = connector
        self.security = connector.security
        self._accept = accept

    async def connect(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        listener = self._context.config.inter_broker_listener_name
        own = self._context.image().broker(self._context.broker_id)
        endpoint = own and own.endpoint(listener)
        if not endpoint or (endpoint.host, endpoint.port) != (address.host, address.port):
            return await self._connector.connect(address, factory)
        client = cast(asyncio.BufferedProtocol, factory())
        return connect(client, self._accept(listener), address.host, address.port)

    async def look_at_port(self, address: Address) -> PortFacts | None:
        return await self._connector.look_at_port(address)

    def channel(self, address: Address, client_id: str | None = None) -> Channel:
        return self._connector.channel(address, client_id)
