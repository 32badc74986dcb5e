"""The broker's Kafka listeners: bound early, one protocol per connection, drained at the end."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping

from broker.api import KafkaApis
from broker.api.connection_limits import ConnectionLimits
from metadata.brokers import GRPC, PLAINTEXT
from runtime.config.addresses import NamedAddress
from runtime.config.node import ConfigError, NodeConfig
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.connection_memory import ConnectionMemory
from runtime.logins.listener import ListenerLogins
from runtime.metrics.registry import MetricsRegistry
from runtime.tls.listeners import TlsListeners
from stele.addresses import Address, address_text
from stele.wire.v1.metadata_pb2 import Endpoint
from world.network import Listener, Network

logger = logging.getLogger(__name__)

_DRAIN_S = 1.0
"""A broker that stops waits this long for requests that it has taken."""

_REFUSAL_LOG_S = 1.0
"""How far apart lines about refused connections are."""

_IDLE_CHECKS = 4
"""How often in connections.max.idle.ms the connections are looked through."""


class KafkaServer:
    """All Kafka listeners of one broker."""

    def __init__(
        self, config: NodeConfig, network: Network, registry: MetricsRegistry, tls: TlsListeners
    ) -> None:
        self._config = config
        self._network = network
        self._tls = tls
        self._listeners: dict[str, Listener] = {}
        self._apis: KafkaApis | None = None
        self._logins: dict[str, ListenerLogins] = {}
        # In the order of their coming, not a set: they are closed in it.
        self._connections: dict[KafkaServerProtocol, None] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
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
        inter_broker = config.inter_broker_listener_name
        self._limits = ConnectionLimits(
            max_connections=config.max_connections,
            max_per_address=config.max_connections_per_ip,
            address_overrides=config.max_connections_per_ip_overrides,
            listener_max=config.listener_max_connections,
            protected_listener=inter_broker if len(config.listeners) > 1 else None,
        )
        self._refused = registry.counter(
            "stele_connections_refused",
            "Connections of the Kafka protocol closed for max.connections and its kin.",
        )
        # When a refusal was last logged, and how many were not logged since then.
        self._refusal_logged_s = -math.inf
        self._refusals_left_out = 0
        registry.gauge(
            "stele_connections_muted",
            "Connections that are not read because their client is above a quota "
            "(ThrottledChannelReaper queue-size).",
            lambda: sum(each.is_muted for each in self._connections),
        )
        registry.gauge(
            "stele_connection_count",
            "Open connections of the Kafka protocol (connection-count).",
            lambda: len(self._connections),
        )
        registry.gauges(
            "stele_listener_connections",
            "Open connections of the Kafka protocol on each listener (connection-count).",
            "listener",
            self._by_listener,
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
        self._arm_idle_timer()

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
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for connection in list(self._connections):
            connection.drain()
        listeners, self._listeners = self._listeners, {}
        await asyncio.gather(*(each.close(grace_s=_DRAIN_S) for each in listeners.values()))

    # ------------------------------------------------------------------ connections

    def _by_listener(self) -> dict[str, float]:
        counted = self._limits.by_listener
        return {each.name: float(counted.get(each.name, 0)) for each in self._config.listeners}

    def _factory(self, listener_name: str, logins: ListenerLogins | None) -> _ConnectionFactory:
        assert self._apis is not None
        return _ConnectionFactory(self, self._apis, self._config, listener_name, logins)

    def opened(self, connection: KafkaServerProtocol) -> None:
        reason = self._limits.admit(connection.listener_name, connection.address)
        if reason is not None:
            self._refused.value += 1
            self._log_refusal(connection, reason)
            connection.close()
            return
        self._connections[connection] = None
        if self._limits.exceeded:
            self._close_least_recent()

    def _log_refusal(self, connection: KafkaServerProtocol, reason: str) -> None:
        """At most once a second: a client that is refused may come again as fast as it can."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refusal_logged_s < _REFUSAL_LOG_S:
            self._refusals_left_out += 1
            return
        more = f" ({self._refusals_left_out} more since the last such line)"
        logger.warning(
            "refusing %s on %s: %s%s",
            connection.peer,
            connection.listener_name,
            reason,
            more if self._refusals_left_out else "",
        )
        self._refusal_logged_s, self._refusals_left_out = now_s, 0

    def _close_least_recent(self) -> None:
        """Close a client's connection: one of another broker has just taken its place."""
        own = self._config.inter_broker_listener_name
        clients = [
            each for each in self._connections if each.listener_name != own and not each.is_closed
        ]
        if clients:
            victim = min(clients, key=lambda each: each.last_active_s)
            logger.warning("closing %s: a broker needs its place (max.connections)", victim.peer)
            victim.close()

    def closed(self, connection: KafkaServerProtocol) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._limits.release(connection.listener_name, connection.address)
        if self._apis is not None:
            self._apis.forget(connection)

    def _arm_idle_timer(self) -> None:
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms > 0:
            self._idle_timer = asyncio.get_running_loop().call_later(
                idle_ms / 1000 / _IDLE_CHECKS, self._close_idle
            )

    def _close_idle(self) -> None:
        idle_s = self._config.connections_max_idle_ms / 1000
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._connections):
            if now_s - connection.last_active_s <= idle_s or connection.is_muted:
                continue
            # A closed one waits until its peer has taken its answers, for ever if it does not.
            if connection.is_stalled or connection.is_closed:
                logger.info(
                    "closing %s: it did not read its answers for %.0f s", connection.peer, idle_s
                )
                connection.abort()
            elif not connection.in_flight:
                logger.info("closing %s: silent for %.0f s", connection.peer, idle_s)
                connection.close()
        self._arm_idle_timer()


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
            logins=self._logins,
            on_connect=self._server.opened,
            on_close=self._server.closed,
            max_in_flight_requests=self._config.queued_max_requests,
        )


def bind_error(key: str, address: NamedAddress, error: OSError) -> ConfigError:
    """One line that says which key to change, and why."""
    reason = error.strerror or str(error)
    return ConfigError(
        f"{key}={address.name}://{address_text(address.host, address.port)}: {reason}"
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
