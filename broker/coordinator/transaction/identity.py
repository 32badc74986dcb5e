"""Identity and rights of a transactional id's client: the producer id and epoch that it has.

A client that was replaced, or whose transaction was aborted, still has the former epoch. So its
requests are refused. The greatest epoch is never given to a client, so that the coordinator can
always fence a client with a greater one. When a client has the epoch below it, it next gets epoch 0
of another producer id.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.coordinator.transaction.records import RecordedTransaction
from broker.coordinator.transaction.types import NO_PRODUCER_ID

EPOCH_MAX: Final = 2**15 - 1
"""The highest epoch. Only markers have it."""

LAST_EPOCH: Final = EPOCH_MAX - 1
"""The last one that a client may have."""


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch needs a fresh producer id."""
        return self.producer_epoch >= LAST_EPOCH

    def next(self, fresh_producer_id: int) -> Identity | None:
        """What the client gets after it. None if that takes a fresh producer id."""
        if not self.is_exhausted:
            return Identity(self.producer_id, self.producer_epoch + 1)
        if fresh_producer_id == NO_PRODUCER_ID:
            return None
        return Identity(fresh_producer_id, 0)


def identity_of(value: RecordedTransaction) -> Identity:
    """The client's identity. While markers are written, it is the identity that the client got for
    its next transaction, or gets next if the coordinator has aborted its transaction."""
    if value.next_producer_id != NO_PRODUCER_ID:
        return Identity(value.next_producer_id, value.next_producer_epoch)
    return Identity(value.producer_id, value.producer_epoch)


def is_client(value: RecordedTransaction, asked: Identity) -> bool:
    """Whether ``asked`` is the client. After the coordinator has aborted with the greatest epoch no
    caller is the client, until one has got another producer id."""
    return asked == identity_of(value) and asked.producer_epoch <= LAST_EPOCH


def is_repeated(value: RecordedTransaction, asked: Identity) -> bool:
    """Whether ``asked`` is what the client had before its present identity: then it has not heard
    the answer that gave it the present one, and repeats its request."""
    if asked.producer_id == NO_PRODUCER_ID or asked.producer_id != value.previous_producer_id:
        return False
    current = identity_of(value)
    if asked.producer_id == current.producer_id:
        return asked.producer_epoch + 1 == current.producer_epoch
    return asked.producer_epoch == LAST_EPOCH  # the present producer id followed it
