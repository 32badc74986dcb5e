"""What a leader asks before it takes the first records of a transaction (KIP-890).

Records may be part of a transaction only if its coordinator knows that this partition is. Otherwise
nobody would ever write the marker that ends the transaction here, and the last stable offset would
never rise again. Once the log has an open transaction of the producer, nothing more is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.replication.replica import Replica
from stele.errors import ErrorCode
from stele.ids import TopicPartition

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


class Guard(NamedTuple):
    """What a coordinator's verdict goes by. If it has changed meanwhile, the verdict may be about a
    transaction that was ended since."""

    tenure: object
    leader_epoch: int
    markers: int

    @classmethod
    def of(cls, replica: Replica, producer_id: int) -> Guard:
        return cls(replica.tenure, replica.machine.leader_epoch, _markers(replica, producer_id))

    def is_same_leader(self, replica: Replica) -> bool:
        """Whether no other leader can have written a marker meanwhile."""
        return replica.has_tenure(self.tenure) and replica.machine.leader_epoch == self.leader_epoch

    def holds(self, replica: Replica, producer_id: int) -> bool:
        """Whether no marker may have ended the transaction. A marker of a later epoch fences the
        transaction, which is checked at the append."""
        return self.is_same_leader(replica) and self.markers == _markers(replica, producer_id)


def _markers(replica: Replica, producer_id: int) -> int:
    entry = replica.log.producers.get(producer_id)
    return 0 if entry is None else entry.markers


def told_to_producer(error: ErrorCode) -> ErrorCode:
    """What a producer is told of the verdict on its batch."""
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
