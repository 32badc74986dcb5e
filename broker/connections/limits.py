"""How many connections a broker takes: of all, of a listener, of one address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from metadata.connection_settings import ConnectionSettings


class Reason(Enum):
    """Why a broker closes a connection. The values are labels of a metric."""

    PER_ADDRESS = "max.connections.per.ip"
    LISTENER = "listener max.connections"
    BROKER = "max.connections"
    ADDRESS_RATE = "connection_creation_rate"
    CREATION_RATE = "max.connection.creation.rate"
    START = "the broker starts"
    IDLE = "connections.max.idle.ms"
    STALLED = "answers not read"


class Refusal(NamedTuple):
    """A connection is closed."""

    reason: Reason
    message: str
    after_s: float = 0.0
    """Until then it stays open, and is not read."""


class ConnectionLimits:
    """Counts open connections against ``max.connections`` and its kin. Pure.

    As in Kafka, the broker's limit does not bind the inter-broker listener if there are other
    listeners. Replication goes on however many clients have come: a client's connection is closed
    instead.
    """

    def __init__(self, settings: ConnectionSettings, protected_listener: str | None) -> None:
        """``protected_listener`` is the inter-broker listener, None if there is no other."""
        self._settings = settings
        self._protected = protected_listener
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()

    def take(self, settings: ConnectionSettings) -> None:
        """Go by these from now on. Connections that are open stay so."""
        self._settings = settings

    @property
    def excess(self) -> int:
        """How many connections there are above the broker's limit. So many of clients have to be
        closed."""
        return max(0, self._by_listener.total() - self._settings.max_connections)

    @property
    def by_listener(self) -> Mapping[str, int]:
        """The connections that are counted now, by the listener's name."""
        return self._by_listener

    @property
    def by_address(self) -> Mapping[str, int]:
        """The connections that are counted now, by the peer's address."""
        return self._by_address

    def admit(self, listener: str, address: str) -> Refusal | None:
        """Count a new connection, to be given to ``release`` later; or why it is refused."""
        settings, of_listener = self._settings, self._by_listener[listener]
        most = settings.address_overrides.get(address, settings.max_per_address)
        if self._by_address[address] >= most:
            message = f"max.connections.per.ip: {most} connections of {address} are open"
            return Refusal(Reason.PER_ADDRESS, message)
        most = settings.listener_max.get(listener, of_listener + 1)
        if of_listener >= most:
            name = f"listener.name.{listener.lower()}.max.connections"
            message = f"{name}: {most} connections are open"
            return Refusal(Reason.LISTENER, message)
        most = settings.max_connections
        if self._by_listener.total() >= most and listener != self._protected:
            message = f"max.connections: {most} connections are open"
            return Refusal(Reason.BROKER, message)
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        return None

    def release(self, listener: str, address: str) -> None:
        """An admitted connection is closed."""
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
