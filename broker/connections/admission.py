"""Whether a new connection is admitted, waits, or is closed.

In this order:

- A connection beyond a number (``max.connections`` and its kin) is closed at once.
- A connection beyond the quota of its address (``connection_creation_rate``) is held for the time
  that it is too early, a second at most, and closed then. A client that comes again at once is
  slowed down by that. It counts for nothing else: neither as open, nor for the rates below. So a
  client above its quota takes nothing from others.
- A connection beyond a rate of its listener or of the broker (``max.connection.creation.rate``) is
  held until its turn comes. It counts as open. ``broker.connections.held`` says in which order.

The rates are buckets of tokens, of which 11 seconds' worth may be used at once. Kafka averages over
11 samples of a second, and so admits nearly all of them at the beginning of every 11 seconds.
Connections to the inter-broker listener count for the rate of their listener only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, Protocol

from broker.connections.held import C, FairQueue
from broker.connections.limits import ConnectionLimits, Reason, Refusal
from metadata.config_key import INT_MAX
from metadata.connection_settings import ConnectionSettings
from runtime.quota.bucket import TokenBucket

DELAYED_MAX: Final = 1000
"""Connections above the quota of their address that are closed later. Others are closed at once."""

_LEAST_S: Final = 0.001
"""No wait is shorter. Several connections may be due after it."""


class AddressRates(Protocol):
    """What admission needs of ``runtime.quota.addresses.AddressQuotas``."""

    def admit(self, address: str, now_s: float) -> float:
        """Count a new connection of an address; or how much too early it comes."""
        ...


class Held(NamedTuple, Generic[C]):
    """The connection waits."""

    crowded_out: C | None
    """The connection that waited in its place, and is to be closed."""


class ConnectionAdmission(Generic[C]):
    """Pure: times come with the calls, and must not go back. ``C`` is a connection."""

    def __init__(
        self,
        settings: ConnectionSettings,
        protected_listener: str | None,
        addresses: AddressRates,
        *,
        now_s: float,
    ) -> None:
        """``protected_listener``: as for ``ConnectionLimits``. ``addresses``: their quotas."""
        self._addresses = addresses
        self.limits = ConnectionLimits(settings, protected_listener)
        self._protected = protected_listener
        self._broker_bucket: TokenBucket | None = None
        self._buckets: dict[str, TokenBucket] = {}  # by listener, if it has a rate
        # Only listeners with held connections. The listener whose turn it is comes first.
        self._queues: OrderedDict[str, FairQueue[C]] = OrderedDict()
        self._delayed = 0
        self.take(settings, now_s)

    @property
    def held(self) -> int:
        """How many connections wait for their turn."""
        return sum(map(len, self._queues.values()))

    def take(self, settings: ConnectionSettings, now_s: float) -> None:
        """Go by these from now on. Open connections stay open, and ``due`` looks at waiting
        connections anew."""
        self.limits.take(settings)
        self._broker_bucket = _renewed(self._broker_bucket, settings.creation_rate, now_s)
        self._buckets = {
            name: bucket
            for name, rate in settings.listener_rates.items()
            if (bucket := _renewed(self._buckets.get(name), rate, now_s)) is not None
        }

    def arrive(
        self, connection: C, listener: str, address: str, now_s: float
    ) -> Held[C] | Refusal | None:
        """None: the connection is admitted. ``left`` must hear of the end of an admitted or held
        connection, and ``closed_late`` of the end of a refused connection that has a time."""
        refusal = self.limits.admit(listener, address)
        if refusal is not None:
            return refusal
        early_s = self._addresses.admit(address, now_s)
        if early_s > 0:
            self.limits.release(listener, address)
            return self._delay(address, early_s)
        if listener not in self._queues and self._take_tokens(listener, now_s):
            return None
        return self._hold(connection, listener, address)

    def due(self, now_s: float) -> Iterator[C]:
        """Admit the held connections whose turn has come."""
        stuck = 0
        while stuck < len(self._queues):
            listener, queue = next(iter(self._queues.items()))
            self._queues.move_to_end(listener)
            if not self._take_tokens(listener, now_s):
                stuck += 1
                continue
            stuck = 0
            connection = queue.pop()
            if not queue:
                del self._queues[listener]
            yield connection

    def next_due_s(self, now_s: float) -> float | None:
        """When ``due`` has something to do; None: nobody waits."""
        waits = [
            max((each.wait_s(now_s) for each in self._buckets_of(listener)), default=0.0)
            for listener in self._queues
        ]
        return now_s + max(_LEAST_S, min(waits)) if waits else None

    def left(self, connection: C, listener: str, address: str) -> None:
        """A connection that was admitted or held is closed."""
        self.limits.release(listener, address)
        queue = self._queues.get(listener)
        if queue is not None:
            queue.remove(connection, address)
            if not queue:
                del self._queues[listener]

    def closed_late(self) -> None:
        """A connection above the quota of its address is closed."""
        self._delayed -= 1

    def _delay(self, address: str, early_s: float) -> Refusal:
        message = f"connection_creation_rate: a connection of {address} comes {early_s:.3f} s early"
        if self._delayed >= DELAYED_MAX:
            return Refusal(Reason.ADDRESS_RATE, message)
        self._delayed += 1
        return Refusal(Reason.ADDRESS_RATE, message, early_s)

    def _hold(self, connection: C, listener: str, address: str) -> Held[C] | Refusal:
        queue = self._queues.get(listener)
        if queue is None:
            queue = self._queues[listener] = FairQueue()
        out = queue.push(connection, address)
        if out is not connection:
            return Held(out)
        self.limits.release(listener, address)
        return Refusal(
            Reason.CREATION_RATE,
            f"max.connection.creation.rate: {len(queue)} connections of {listener} wait already, "
            f"and no address has more of them than {address}",
        )

    def _take_tokens(self, listener: str, now_s: float) -> bool:
        buckets = self._buckets_of(listener)
        if any(each.wait_s(now_s) for each in buckets):
            return False
        for each in buckets:
            each.take(1, now_s)
        return True

    def _buckets_of(self, listener: str) -> list[TokenBucket]:
        buckets = []
        if self._broker_bucket is not None and listener != self._protected:
            buckets.append(self._broker_bucket)
        if listener in self._buckets:
            buckets.append(self._buckets[listener])
        return buckets


def _renewed(bucket: TokenBucket | None, rate: int, now_s: float) -> TokenBucket | None:
    if rate >= INT_MAX:
        return None
    if bucket is None:
        return TokenBucket(rate, now_s)
    bucket.set_bound(rate, now_s)
    return bucket
