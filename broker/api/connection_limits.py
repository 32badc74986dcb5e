"""How many connections a broker takes: of all, of a listener, of one address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class ConnectionLimits:
    """Counts open connections against ``max.connections`` and its kin. Pure.

    As in Kafka, the broker's limit does not bind the inter-broker listener if there are other
    listeners. Replication goes on however many clients have come: a client's connection is closed
    instead.
    """

    def __init__(
        self,
        *,
        max_connections: int,
        max_per_address: int,
        address_overrides: Mapping[str, int],
        listener_max: Mapping[str, int],
        protected_listener: str | None,
    ) -> None:
        """``listener_max`` is by the listener's name. ``protected_listener`` is the inter-broker
        listener, None if there is no other."""
        self._max = max_connections
        self._max_per_address = max_per_address
        self._overrides = dict(address_overrides)
        self._listener_max = dict(listener_max)
        self._protected = protected_listener
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()

    @property
    def exceeded(self) -> bool:
        """Whether there are more connections than allowed, so that a client's has to be closed."""
        return self._by_listener.total() > self._max

    @property
    def by_listener(self) -> Mapping[str, int]:
        """The connections that are counted now, by the listener's name."""
        return self._by_listener

    def admit(self, listener: str, address: str) -> str | None:
        """Count a new connection, to be given to ``release`` later; or why it is refused."""
        most = self._overrides.get(address, self._max_per_address)
        if self._by_address[address] >= most:
            return f"max.connections.per.ip: {most} connections of {address} are open"
        most = self._listener_max.get(listener, self._by_listener[listener] + 1)
        if self._by_listener[listener] >= most:
            name = f"listener.name.{listener.lower()}.max.connections"
            return f"{name}: {most} connections are open"
        if self._by_listener.total() >= self._max and listener != self._protected:
            return f"max.connections: {self._max} connections are open"
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        return None

    def release(self, listener: str, address: str) -> None:
        """An admitted connection is closed."""
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
