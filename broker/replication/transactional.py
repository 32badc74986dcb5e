"""Batches of transactions on their way to the log: the first waits for a coordinator's verdict."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.replication.replica import Replica
from broker.replication.types import ProduceEntry
from broker.replication.verification import (
    Guard,
    Guards,
    NoVerifier,
    TransactionVerifier,
    told_to_producer,
)
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.wire.batch import BatchHeader

logger = logging.getLogger(__name__)

_REMEMBERED: Final = 10_000
"""The number of producers whose lowest refused sequence is remembered."""


class TransactionalBatch(Protocol):
    """A sound batch of a request."""

    @property
    def entry(self) -> ProduceEntry: ...

    @property
    def is_abandoned(self) -> bool:
        """Answered already: it must not be appended any more."""
        ...

    @property
    def sound_header(self) -> BatchHeader: ...


B = TypeVar("B", bound=TransactionalBatch)


class _Verification(Generic[B]):
    """A question to a coordinator, and the batches that wait for its verdict, in order."""

    __slots__ = ("batches", "epoch", "guard")

    def __init__(self, epoch: int, guard: Guard) -> None:
        self.epoch = epoch
        self.guard = guard
        self.batches: deque[B] = deque()


class _Lowest(NamedTuple):
    """The first of the batches that were refused for want of a verdict."""

    epoch: int
    sequence: int


class TransactionalBatches(Generic[B]):
    """Has the first batch of a transaction verified. Later ones of the same partition and producer
    wait behind it. Nothing that waits here is told to the log."""

    def __init__(
        self,
        append: Callable[[B], None],
        refuse: Callable[[B, ApiError], None],
    ) -> None:
        """``append`` appends a batch that has waited, and answers it. It does not raise. Before
        that it asks ``check`` again."""
        self.verifier: TransactionVerifier = NoVerifier()
        self.guards = Guards()
        self._append = append
        self._refuse = refuse
        self._asked: dict[tuple[PartitionId, int], _Verification[B]] = {}
        # If the first batch of a producer that is not known was refused, the second must not become
        # the first: the producer repeats both, and the first would then be out of order for ever.
        self._lowest: dict[tuple[PartitionId, int], _Lowest] = {}
        # The verdict that the batch being appended relies on.
        self._verdict: tuple[B, Guard] | None = None

    def must_wait(self, replica: Replica, batch: B) -> bool:
        """Whether the batch waits from now on; else it may be appended now. Raises ApiError."""
        entry, header = batch.entry, batch.sound_header
        transaction, producer_id = entry.transaction, header.producer_id
        if transaction is None:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a batch of a transaction in a request without a transactional id",
            )
        key = (entry.id, producer_id)
        asked = self._asked.get(key)
        if asked is not None:
            asked.batches.append(batch)
            return True
        producers = replica.log.producers
        if producers.is_open(producer_id, header.producer_epoch):
            return False
        if producers.check(header) is not None:
            return False  # it is in the log already, and its transaction has ended since
        self._check_first(replica, key, header, adds=transaction.adds_partition)
        # A verdict of before this leadership does not hold: the batch asks anew.
        if self._verdict is not None:
            batch_of_verdict, verdict = self._verdict
            if batch_of_verdict is batch and verdict.holds(replica):
                self._lowest.pop(key, None)
                return False
        guard = self.guards.of(replica, producer_id, header.producer_epoch)
        asked = self._asked[key] = _Verification(header.producer_epoch, guard)
        asked.batches.append(batch)
        self.verifier.verify(
            transaction.transactional_id,
            producer_id,
            header.producer_epoch,
            TopicPartition(replica.topic, entry.id.partition),
            add=transaction.adds_partition,
            done=lambda error: self._decided(key, asked, error),
        )
        return True

    def _check_first(
        self, replica: Replica, key: tuple[PartitionId, int], header: BatchHeader, *, adds: bool
    ) -> None:
        """Check the sequence of the first batch of a transaction, of a producer that is not known.

        ``adds``: each transaction has a later epoch than the one before it, so that its sequences
        begin with 0 (KIP-890).
        """
        if replica.log.producers.get(header.producer_id) is not None:
            return  # it has been checked
        expected = 0
        if not adds:
            lowest = self._lowest.get(key)
            if lowest is None or header.producer_epoch != lowest.epoch:
                return
            expected = min(lowest.sequence, header.base_sequence)
        if header.base_sequence != expected:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, "
                f"{expected} was next",
            )

    def _decided(
        self, key: tuple[PartitionId, int], asked: _Verification[B], error: ErrorCode
    ) -> None:
        """The coordinator has answered: append what waits, in order, or refuse it."""
        if self._asked.get(key) is not asked:
            return  # it has answered before, or a marker has ended the transaction
        del self._asked[key]
        for batch in asked.batches:
            if batch.is_abandoned:
                self._remember(key, batch.sound_header)
            elif batch.sound_header.producer_epoch != asked.epoch:
                self._append(batch)  # a verdict on another epoch: it asks for its own
            elif error is not ErrorCode.NONE:
                self._remember(key, batch.sound_header)
                message = f"the transaction could not be verified: {error.name}"
                self._refuse(batch, ApiError(told_to_producer(error), message))
            else:
                self._verdict = batch, asked.guard
                try:
                    self._append(batch)
                finally:
                    self._verdict = None

    def transaction_ended(
        self, partition: PartitionId, producer_id: int, producer_epoch: int
    ) -> None:
        """A marker has ended the producer's transaction of this epoch. Batches of it that still
        wait for a verdict came too late, and a verdict that is under way counts for nothing."""
        self.guards.end(partition, producer_id, producer_epoch)
        key = partition, producer_id
        asked = self._asked.get(key)
        if asked is None or asked.epoch != producer_epoch:
            return
        del self._asked[key]
        ended = ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of producer {producer_id} in epoch {producer_epoch} was ended before "
            "the batch could be appended",
        )
        for batch in asked.batches:
            if batch.is_abandoned:
                continue
            if batch.sound_header.producer_epoch == producer_epoch:
                self._refuse(batch, ended)
            else:
                self._append(batch)  # of a later epoch: it asks for its own verdict

    def _remember(self, key: tuple[PartitionId, int], header: BatchHeader) -> None:
        """A batch was not appended that a producer will repeat."""
        lowest = self._lowest.pop(key, None)
        sequence = header.base_sequence
        if lowest is not None and lowest.epoch == header.producer_epoch:
            sequence = min(sequence, lowest.sequence)
        self._lowest[key] = _Lowest(header.producer_epoch, sequence)
        while len(self._lowest) > _REMEMBERED:
            del self._lowest[next(iter(self._lowest))]
