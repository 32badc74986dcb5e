"""The open connections of a broker's Kafka listeners: which are admitted, held, and closed."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from broker.connections.admission import AddressRates, ConnectionAdmission, Held
from broker.connections.limits import Reason, Refusal
from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta
from metadata.effective import effective_connection_settings
from metadata.image import MetadataImage
from runtime.authorization.caller import NODE_ITSELF
from runtime.config.node import NodeConfig
from runtime.kafka.connection import KafkaServerProtocol
from runtime.metrics.registry import MetricsRegistry
from runtime.quota.kept import SAMPLES_MAX
from security.authorizer.decision import canonical_host

logger = logging.getLogger(__name__)

_LOG_S: Final = 1.0
"""How far apart lines about refused and about displaced connections are."""

_IDLE_CHECKS: Final = 4
"""How often in connections.max.idle.ms the connections are looked through."""

EARLY_MAX: Final = 10_000
"""Connections that wait for the first metadata."""

_CHANGED_PER_TURN: Final = 100


class OpenConnections:
    """Carries out what ``ConnectionAdmission`` decides. A ``MetadataSubscriber``.

    Limits may change at any time. What comes before the first metadata waits for them: a flood at
    the start of a broker would otherwise pass by its limits. The connections of this node to itself
    are neither counted nor limited.
    """

    def __init__(
        self, config: NodeConfig, registry: MetricsRegistry, addresses: AddressRates
    ) -> None:
        self._config = config
        self._own = ConfigResource.broker(config.node_id)
        own = config.inter_broker_listener_name
        self._protected = own if len(config.listeners) > 1 else None
        # In the order of their coming, not a set: they are closed in it.
        self._connections: dict[KafkaServerProtocol, None] = {}
        self._addresses: dict[KafkaServerProtocol, str] = {}  # of counted connections
        # Connections that wait for the first metadata. None: the metadata are there.
        self._early: dict[KafkaServerProtocol, None] | None = {}
        self._delayed: dict[KafkaServerProtocol, asyncio.TimerHandle] = {}
        self._admission: ConnectionAdmission[KafkaServerProtocol] = ConnectionAdmission(
            config.connections, self._protected, addresses, now_s=0.0
        )
        self._turn: asyncio.TimerHandle | None = None  # of the next held one
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closing_excess: asyncio.Handle | None = None
        # The address that was refused last comes last. Nobody bounds the number of addresses.
        self._refused_addresses: OrderedDict[str, int] = OrderedDict()
        self._refusals = _SparseLog()
        self._displaced = _SparseLog()
        self._declare(registry)

    def _declare(self, registry: MetricsRegistry) -> None:
        self._refused = registry.counter(
            "stele_connections_refused",
            "Connections of the Kafka protocol closed for max.connections and its kin.",
        )
        self._admitted = registry.counters(
            "stele_listener_connections_admitted",
            "Connections of the Kafka protocol admitted on each listener "
            "(connection-creation-total).",
            "listener",
        )
        self._closed = registry.counters(
            "stele_connections_closed",
            "Connections of the Kafka protocol that the broker closed, by the setting or quota.",
            "reason",
        )
        registry.gauge(
            "stele_connections_held",
            "Connections that wait for their turn (max.connection.creation.rate), or to be closed "
            "(connection_creation_rate).",
            lambda: self._admission.held + len(self._delayed),
        )
        registry.gauge(
            "stele_connections_muted",
            "Connections that are not read because their client is above a quota "
            "(ThrottledChannelReaper queue-size).",
            lambda: sum(each.muted.is_on for each in self._connections),
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

        registry.samples(
            "stele_connections_refused_by_address",
            "Connections of an address closed for max.connections and its kin, of the addresses "
            "that were refused last.",
            ("ip",),
            lambda: (((ip,), float(count)) for ip, count in self._refused_addresses.items()),
        )

    @property
    def by_address(self) -> Mapping[str, int]:
        """How many connections of each address are open and counted."""
        return self._admission.limits.by_address

    @property
    def refused_addresses(self) -> Mapping[str, int]:
        """How many connections of each address were refused. Only the newest addresses are here."""
        return self._refused_addresses

    def _by_listener(self) -> dict[str, float]:
        counted = self._admission.limits.by_listener
        return {each.name: float(counted.get(each.name, 0)) for each in self._config.listeners}

    @property
    def open(self) -> list[KafkaServerProtocol]:
        """The connections that are not refused, including this node's connections to itself."""
        return list(self._connections)

    def start(self) -> None:
        """Close idle connections from now on."""
        self._arm_idle_timer()

    def drain(self) -> None:
        """Take no more requests of any connection, and close each when it is answered."""
        for timer in (self._idle_timer, self._turn, self._closing_excess):
            if timer is not None:
                timer.cancel()
        self._idle_timer = self._turn = self._closing_excess = None
        for connection in [*self._connections, *self._delayed]:
            connection.drain()

    # -------------------------------------------------------------------- limits that change

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None] | None:
        early, self._early = self._early, None
        if any(each in (CLUSTER, self._own) for each in delta.changed_configs):
            settings = effective_connection_settings(
                image,
                static=self._config.raw,
                broker_id=self._config.node_id,
                listeners=[each.name for each in self._config.listeners],
            )
            self._admission.take(settings, _now_s())
            self._let_in()
            self._close_excess()
        return self._judge_early(early) if early else None

    def _hold_early(
        self, connection: KafkaServerProtocol, early: dict[KafkaServerProtocol, None], address: str
    ) -> None:
        """The broker cannot see that the peer of a held connection has left. It most likely has
        where the connection is oldest, so the oldest makes way."""
        self._connections[connection] = early[connection] = None
        self._addresses[connection] = address
        connection.hold()
        if len(early) > EARLY_MAX:
            oldest = next(iter(early))
            del early[oldest]
            message = f"the broker starts, and {EARLY_MAX} newer connections wait already"
            self._refuse(oldest, Refusal(Reason.START, message))

    def _judge_early(self, early: Iterable[KafkaServerProtocol]) -> Iterator[None]:
        """The metadata are there, for which these have waited."""
        for count, connection in enumerate(early, 1):
            address = self._addresses.pop(connection, None)
            if address is not None:  # else it has left meanwhile
                listener = connection.listener_name
                del self._connections[connection]
                self._admission.left(connection, listener, address)
                self._judge(connection, listener, address)
            if count % _CHANGED_PER_TURN == 0:
                yield

    # ------------------------------------------------------------------- of one connection

    def opened(self, connection: KafkaServerProtocol) -> None:
        if connection.principal == NODE_ITSELF:
            self._connections[connection] = None
            return
        address, listener = canonical_host(connection.address), connection.listener_name
        if self._early is not None:
            refusal = self._admission.limits.admit(listener, address)
            if refusal is not None:
                self._refuse(connection, refusal)
                return
            self._hold_early(connection, self._early, address)
            return
        self._judge(connection, listener, address)

    def _judge(self, connection: KafkaServerProtocol, listener: str, address: str) -> None:
        verdict = self._admission.arrive(connection, listener, address, _now_s())
        if isinstance(verdict, Refusal):
            self._refuse(connection, verdict)
            return
        self._connections[connection] = None
        self._addresses[connection] = address
        if verdict is None:
            self._admitted(listener).value += 1
            if connection.is_held:
                connection.let_in()
        else:
            self._hold(connection, verdict)
        if listener == self._protected:
            self._close_excess()

    def closed(self, connection: KafkaServerProtocol) -> None:
        self._connections.pop(connection, None)
        if self._early is not None:
            self._early.pop(connection, None)
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._admission.left(connection, connection.listener_name, address)
        timer = self._delayed.pop(connection, None)
        if timer is not None:
            timer.cancel()
            self._admission.closed_late()

    def _refuse(self, connection: KafkaServerProtocol, refusal: Refusal) -> None:
        self._refused.value += 1
        self._closed(refusal.reason.value).value += 1
        self._note_refused(canonical_host(connection.address))
        if (more := self._refusals.due()) is not None:
            logger.warning(
                "refusing %s on %s: %s%s",
                connection.peer,
                connection.listener_name,
                refusal.message,
                more,
            )
        if refusal.after_s > 0:
            connection.hold()
            loop = asyncio.get_running_loop()
            self._delayed[connection] = loop.call_later(refusal.after_s, connection.close)
        else:
            connection.close()

    def _note_refused(self, address: str) -> None:
        refused = self._refused_addresses
        refused[address] = refused.get(address, 0) + 1
        refused.move_to_end(address)
        if len(refused) > SAMPLES_MAX:
            refused.popitem(last=False)

    # -------------------------------------------------------------------- above a rate

    def _hold(self, connection: KafkaServerProtocol, held: Held[KafkaServerProtocol]) -> None:
        connection.hold()
        if held.crowded_out is not None:
            message = "max.connection.creation.rate: too many connections wait, most of its address"
            self._refuse(held.crowded_out, Refusal(Reason.CREATION_RATE, message))
        if self._turn is None:
            self._arm_turn()

    def _let_in(self) -> None:
        """Admit the held connections whose turn has come."""
        for connection in self._admission.due(_now_s()):
            self._admitted(connection.listener_name).value += 1
            connection.let_in()
        self._arm_turn()

    def _arm_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        due_s = self._admission.next_due_s(_now_s())
        if due_s is not None:
            self._turn = asyncio.get_running_loop().call_at(due_s, self._let_in)

    # ------------------------------------------------------------- more than max.connections

    def _close_excess(self) -> None:
        """Close connections of clients while there are too many: a broker has taken the place of
        one, or the limit is lower now. Unused connections go first."""
        if self._closing_excess is not None:
            self._closing_excess.cancel()
            self._closing_excess = None
        excess = self._admission.limits.excess
        if not excess:
            return
        excess -= sum(each.is_closed for each in self._addresses)
        of_clients = (
            each
            for each in self._addresses
            if each.listener_name != self._protected and not each.is_closed
        )
        victims = heapq.nsmallest(min(excess, _CHANGED_PER_TURN), of_clients, key=_use)
        for victim in victims:
            self._displace(victim)
        if len(victims) < excess and victims:
            loop = asyncio.get_running_loop()
            self._closing_excess = loop.call_soon(self._close_excess)

    def _displace(self, victim: KafkaServerProtocol) -> None:
        self._closed(Reason.BROKER.value).value += 1
        if (more := self._displaced.due()) is not None:
            logger.warning(
                "closing %s: max.connections is exceeded, and it was used least recently%s",
                victim.peer,
                more,
            )
        if victim.is_stalled:
            victim.abort()  # else it keeps its place until its peer reads
        else:
            victim.close()

    # ---------------------------------------------------------------------------- idle

    def _arm_idle_timer(self) -> None:
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms > 0:
            self._idle_timer = asyncio.get_running_loop().call_later(
                idle_ms / 1000 / _IDLE_CHECKS, self._close_idle
            )

    def _close_idle(self) -> None:
        idle_s = self._config.connections_max_idle_ms / 1000
        now_s = _now_s()
        for connection in list(self._connections):
            if now_s - connection.last_active_s <= idle_s:
                continue
            if connection.muted.is_on or connection.is_held:
                continue
            # A closed one waits until its peer has taken its answers, for ever if it does not.
            if connection.is_stalled or connection.is_closed:
                logger.info(
                    "closing %s: it did not read its answers for %.0f s", connection.peer, idle_s
                )
                self._closed(Reason.STALLED.value).value += 1
                connection.abort()
            elif not connection.in_flight:
                logger.info("closing %s: silent for %.0f s", connection.peer, idle_s)
                self._closed(Reason.IDLE.value).value += 1
                connection.close()
        self._arm_idle_timer()


def _use(connection: KafkaServerProtocol) -> tuple[bool, bool, float]:
    """The least is of the connection that is missed least: one that waits for its turn, then one
    without a request under way. Of several it is the one that was silent for longest."""
    return not connection.is_held, connection.in_flight > 0, connection.last_active_s


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class _SparseLog:
    """Limits the lines of the log: a refused client may come again at once."""

    def __init__(self) -> None:
        self._logged_s = -math.inf
        self._left_out = 0

    def due(self) -> str | None:
        """The end of the line, which says how many were left out since the last one; None: it is
        left out."""
        now_s = _now_s()
        if now_s - self._logged_s < _LOG_S:
            self._left_out += 1
            return None
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        self._logged_s, self._left_out = now_s, 0
        return more
