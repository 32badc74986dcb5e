"""The broker's Kafka listeners: bound early, one protocol per connection, drained at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from broker.api import KafkaApis
from broker.connections.open_connections import OpenConnections
from metadata.brokers import GRPC, PLAINTEXT
from runtime.config.bind_error import bind_error
from runtime.config.node import NodeConfig
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.connection_memory import ConnectionMemory
from runtime.kafka.turns import Turns
from runtime.logins.listener import ListenerLogins
from runtime.metrics.registry import MetricsRegistry
from runtime.quota.addresses import AddressQuotas
from runtime.tls.listeners import TlsListeners
from stele.addresses import Address
from stele.wire.v1.metadata_pb2 import Endpoint
from stele.world import Clock
from world.network import Listener, Network

logger = logging.getLogger(__name__)

_DRAIN_S = 1.0
"""A broker that stops waits this long for requests that it has taken."""


class KafkaServer:
    """All Kafka listeners of one broker."""

    def __init__(
        self,
        config: NodeConfig,
        network: Network,
        registry: MetricsRegistry,
        tls: TlsListeners,
        addresses: AddressQuotas,
        clock: Clock,
    ) -> None:
        self._config = config
        self._network = network
        self._tls = tls
        self._listeners: dict[str, Listener] = {}
        self._apis: KafkaApis | None = None
        self._logins: dict[str, ListenerLogins] = {}
        self.connections = OpenConnections(config, registry, addresses)
        self.memory = ConnectionMemory(config.queued_max_request_bytes)
        registry.gauge(
            "stele_connection_memory_bytes",
            "Bytes of queued.max.request.bytes that requests and answers under way use.",
            lambda: self.memory.held_bytes,
        )
        registry.gauge(
            "stele_connections_waiting_for_memory",
            "Connections that are not read because queued.max.request.bytes is used up.",
            lambda: self.memory.waiting,
        )
        self.turns = Turns(clock)
        registry.gauge(
            "stele_connections_waiting_for_a_turn",
            "Connections that are not read because others of the node have their turn.",
            lambda: self.turns.waiting,
        )

    async def bind(
        self, apis: KafkaApis, logins: Mapping[str, ListenerLogins] | None = None
    ) -> None:
        """Listen on all of ``listeners``. ``logins``: how clients log in, by the names of the
        listeners that have SASL. Raises ConfigError in one line naming the key."""
        self._apis = apis
        self._logins = dict(logins or {})
        for address in self._config.listeners:
            try:
                self._listeners[address.name] = await self._network.listen(
                    Address(address.host, address.port),
                    self._factory(address.name, self._logins.get(address.name)),
                    tls=self._tls.of(address.name),
                )
            except OSError as error:
                await self.close()
                raise bind_error("listeners", address, error) from error
        self.connections.start()

    @property
    def ports(self) -> dict[str, int]:
        """The bound port of each listener, by its name."""
        return {name: listener.port for name, listener in self._listeners.items()}

    def accept(self, listener_name: str) -> KafkaServerProtocol:
        """The server's side of a connection from within this process, as if it had come in on this
        listener. Its caller is this node."""
        return self._factory(listener_name, None)()

    async def close(self) -> None:
        """Take no more requests, answer those taken, close."""
        self.connections.drain()
        listeners, self._listeners = self._listeners, {}
        await asyncio.gather(*(each.close(grace_s=_DRAIN_S) for each in listeners.values()))

    def closed(self, connection: KafkaServerProtocol) -> None:
        self.connections.closed(connection)
        if self._apis is not None:
            self._apis.forget(connection)

    def _factory(self, listener_name: str, logins: ListenerLogins | None) -> _ConnectionFactory:
        assert self._apis is not None
        return _ConnectionFactory(self, self._apis, self._config, listener_name, logins)


class _ConnectionFactory:
    """Makes the protocol object of each accepted connection of one listener."""

    def __init__(
        self,
        server: KafkaServer,
        apis: KafkaApis,
        config: NodeConfig,
        listener_name: str,
        logins: ListenerLogins | None,
    ) -> None:
        self._server, self._apis, self._config = server, apis, config
        self._listener_name = listener_name
        self._logins = logins

    def __call__(self) -> KafkaServerProtocol:
        return KafkaServerProtocol(
            self._apis,
            max_request_bytes=self._config.socket_request_max_bytes,
            listener_name=self._listener_name,
            memory=self._server.memory,
            turns=self._server.turns,
            logins=self._logins,
            on_connect=self._server.connections.opened,
            on_close=self._server.closed,
            max_in_flight_requests=self._config.queued_max_requests,
        )


def endpoints(
    config: NodeConfig, kafka_ports: Mapping[str, int], grpc_ports: Mapping[str, int]
) -> list[Endpoint]:
    """The advertised addresses, with the bound port where port 0 was configured."""
    both = (
        (PLAINTEXT, config.advertised_listeners, kafka_ports),
        (GRPC, config.grpc_advertised_listeners, grpc_ports),
    )
    return [
        Endpoint(
            listener=address.name,
            host=address.host,
            port=address.port or bound[address.name],
            protocol=protocol,
        )
        for protocol, configured, bound in both
        for address in configured
    ]
