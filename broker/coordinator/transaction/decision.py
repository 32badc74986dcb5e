"""The decision on a request, and the changes that the coordinator makes by itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.coordinator.transaction.identity import EPOCH_MAX, identity_of
from broker.coordinator.transaction.partitions import NO_PARTITIONS
from broker.coordinator.transaction.records import RecordedTransaction
from broker.coordinator.transaction.types import NO_EPOCH, NO_PRODUCER_ID, TransactionState

EPOCH_BUMP_VERSION = 2
"""From this transaction version on the client gets a new epoch with every transaction (KIP-890)."""


class Decision(NamedTuple):
    answer: Any
    value: RecordedTransaction | None = None
    """The new value of the transactional id. None: nothing changes."""


def abort(value: RecordedTransaction, transaction_version: int, now_ms: int) -> RecordedTransaction:
    """Abort an open transaction that its client has not ended. Kafka calls this an epoch fence.

    The epoch rises, so every later request of the client is refused. With transaction version 2 a
    client that repeats its earlier request, or aborts the transaction by itself, gets the new epoch
    and goes on. Older clients are fenced for good.
    """
    has_epoch_bump = transaction_version >= EPOCH_BUMP_VERSION
    client = identity_of(value)
    is_kept = value.next_producer_id != NO_PRODUCER_ID
    # A client that came back to a kept transaction has a later epoch, which has to rise, too.
    next_epoch = min(client.producer_epoch + 1, EPOCH_MAX) if is_kept else NO_EPOCH
    return value._replace(
        producer_epoch=value.producer_epoch + 1,
        state=TransactionState.PREPARE_ABORT,
        update_time_ms=now_ms,
        previous_producer_id=client.producer_id if has_epoch_bump else NO_PRODUCER_ID,
        next_producer_epoch=next_epoch,
        client_version=EPOCH_BUMP_VERSION if has_epoch_bump else 0,
    )


def complete(value: RecordedTransaction, now_ms: int) -> RecordedTransaction:
    """All markers of a transaction are written."""
    client = identity_of(value)
    is_commit = value.state is TransactionState.PREPARE_COMMIT
    return value._replace(
        producer_id=client.producer_id,
        producer_epoch=client.producer_epoch,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=NO_PARTITIONS,
        update_time_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
    )
