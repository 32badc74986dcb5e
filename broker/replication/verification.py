"""What a leader asks before it takes the first records of a transaction (KIP-890).

Records may be part of a transaction only if its coordinator knows that this partition is. Otherwise
nobody would ever write the marker that ends the transaction here, and the last stable offset would
never rise again. Once the log has an open transaction of the producer, nothing more is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from broker.replication.replica import Replica
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition

# As in Kafka. Older producers do not repeat a batch after these errors, but after this one they do.
_ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionVerifier(Protocol):
    """``broker.coordinator.verification.Verification``."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """``done`` gets, later, NONE if the partition is part of the open transaction of this
        producer. ``add``: the coordinator makes it part of it."""
        ...


class Guard:
    """What a coordinator's verdict on a transaction rests on: this broker leads the partition in
    the same leader epoch, and no marker has ended the transaction since the question was asked."""

    __slots__ = ("__weakref__", "_leader_epoch", "is_over")

    def __init__(self, replica: Replica) -> None:
        # No other leader can write a marker in this epoch. The log stays the same one, too: a
        # replica that has lost it begins anew as a follower, in a later epoch.
        self._leader_epoch = replica.machine.leader_epoch
        self.is_over = False
        """A marker has ended the transaction. A verdict on it counts for nothing any more."""

    def holds(self, replica: Replica) -> bool:
        return not self.is_over and replica.machine.leader_epoch == self._leader_epoch


class Guards:
    """The guards of all verdicts that were asked for and not used yet, by partition, producer id
    and producer epoch.

    They are not kept in the state of producers, because a partition is asked about before it knows
    the producer, and a marker may be the first that it hears of it. Example: the first batch of
    epoch 5 waits for its verdict, the client aborts, and the marker of epoch 5 comes first.
    """

    def __init__(self) -> None:
        # A guard lives as long as somebody waits for its verdict, or may still use it.
        self._guards: WeakValueDictionary[tuple[PartitionId, int, int], Guard] = (
            WeakValueDictionary()
        )

    def of(self, replica: Replica, producer_id: int, producer_epoch: int) -> Guard:
        """The guard of a question that is asked now."""
        key = replica.id, producer_id, producer_epoch
        guard = self._guards.get(key)
        if guard is None or not guard.holds(replica):
            guard = self._guards[key] = Guard(replica)
        return guard

    def end(self, partition: PartitionId, producer_id: int, producer_epoch: int) -> None:
        """A marker has ended the producer's transaction of this epoch. One of an earlier epoch is
        fenced, which is checked at the append."""
        guard = self._guards.pop((partition, producer_id, producer_epoch), None)
        if guard is not None:
            guard.is_over = True


def told_to_producer(error: ErrorCode) -> ErrorCode:
    """The producer's error for the verdict on its batch."""
    if error in _ASK_AGAIN:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


class NoVerifier:
    """Before there are coordinators."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
