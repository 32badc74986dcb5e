"""Placement of the replicas of new partitions.

Placement is striped like that of Kafka's KRaft controller. The racks take turns to lead, and so do
the brokers within a rack. A partition's further replicas go to the following racks, and no rack
gets a second one before all have one. The turns begin at a random broker, because otherwise small
topics would all be on the first brokers. A fenced broker never leads, and is the last of its rack
to get a replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metadata.brokers import BrokerRegistration
from metadata.image import MetadataImage
from stele.errors import ApiError, ErrorCode
from stele.world import Rng


def check_assigned(image: MetadataImage, number: int, replicas: Sequence[int]) -> None:
    """Check the replicas that a request assigns to partition ``number``.

    Raises ApiError INVALID_REPLICA_ASSIGNMENT unless they are registered brokers, each named once.
    """
    fault = ""
    if len(set(replicas)) < len(replicas):
        fault = f"partition {number} names a broker twice"
    for broker_id in replicas:
        if image.broker(broker_id) is None:
            fault = f"partition {number}: broker {broker_id} is not registered"
    if fault:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


@dataclass(slots=True)
class _Rack:
    active: tuple[int, ...]
    fenced: tuple[int, ...]
    # Moves on each time the rack leads, so that its brokers lead equally often. Between two such
    # times the order stays, so that its brokers also follow equally often.
    turn: int

    def brokers(self) -> Iterator[int]:
        """All brokers of the rack in the current order, the fenced ones last."""
        for brokers in (self.active, self.fenced):
            for step in range(len(brokers)):
                yield brokers[(self.turn + step) % len(brokers)]


class StripedPlacer:
    """Places partitions one after the other on the given brokers."""

    def __init__(self, brokers: Sequence[BrokerRegistration], rng: Rng) -> None:
        by_rack: dict[str, list[BrokerRegistration]] = {}
        for broker in sorted(brokers, key=lambda broker: broker.broker_id):
            by_rack.setdefault(broker.rack or "", []).append(broker)
        self._broker_count = len(brokers)
        self._racks = [
            _Rack(
                active=tuple(broker.broker_id for broker in members if broker.active),
                fenced=tuple(broker.broker_id for broker in members if not broker.active),
                turn=rng.randrange(0, len(members)),
            )
            for _, members in sorted(by_rack.items())
        ]
        self._leading = rng.randrange(0, len(self._racks)) if self._racks else 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """The replicas of the next partition, the preferred leader first.

        Raises ApiError INVALID_REPLICATION_FACTOR if there are too few brokers, or all are fenced.
        """
        if not 1 <= replication_factor <= self._broker_count:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a replication factor of {replication_factor} is impossible with "
                f"{self._broker_count} registered brokers",
            )
        leading = self._next_leading_rack()
        order = [*self._racks[leading:], *self._racks[:leading]]
        shares = [rack.brokers() for rack in order]
        replicas: list[int] = []
        while len(replicas) < replication_factor:
            for share in shares:
                broker = next(share, None)
                if broker is not None and len(replicas) < replication_factor:
                    replicas.append(broker)
        self._racks[leading].turn += 1
        self._leading = (leading + 1) % len(self._racks)
        return tuple(replicas)

    def _next_leading_rack(self) -> int:
        for step in range(len(self._racks)):
            index = (self._leading + step) % len(self._racks)
            if self._racks[index].active:
                return index
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "all registered brokers are fenced")
