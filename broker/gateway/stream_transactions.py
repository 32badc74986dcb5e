"""The transactions of one Publish stream: one after the other, each as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from broker.gateway.refusals import Refusal, refusal_of
from stele.aio import Producer
from stele.errors import SteleError, TransactionOutcomeUnknownError

logger = logging.getLogger(__name__)


class EndOfTransaction(NamedTuple):
    """What the client asks for."""

    is_commit: bool


class TransactionEnded(NamedTuple):
    """The outcome of a transaction. ``refusal``: it was not committed, or, with ``maybe_written``,
    nobody knows. None: it was done as asked."""

    is_committed: bool
    refusal: Refusal | None = None


class StreamTransactions:
    """A transaction begins with its first record. ``producer`` belongs to the stream alone."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._is_open = False
        # Why the present transaction lacks a record: it can only be aborted.
        self._lacks: Refusal | None = None
        self._is_committing = False

    async def send(self, send: Callable[[Producer], Awaitable[None]]) -> Refusal | None:
        """Send a record as part of the transaction. The refusal if it was not taken."""
        if self._lacks is not None:
            return Refusal(self._lacks.code, f"the transaction is lost: {self._lacks.message}")
        try:
            if not self._is_open:
                await self.producer.begin_transaction()
                self._is_open = True
            await send(self.producer)
        except SteleError as error:
            self._lacks = refusal_of(error, accepted=False)
            return self._lacks
        return None

    def lacks(self, refusal: Refusal) -> None:
        """A record was refused before it was sent."""
        self._lacks = self._lacks or refusal

    async def end(self, is_commit: bool) -> TransactionEnded:
        """Returns when all records of the transaction have their results."""
        lacks, self._lacks = self._lacks, None
        was_open, self._is_open = self._is_open, False
        try:
            if was_open and is_commit and lacks is None:
                self._is_committing = True
                await self.producer.commit_transaction()
                self._is_committing = False
            elif was_open:
                await self.producer.abort_transaction()
        except TransactionOutcomeUnknownError as error:
            return TransactionEnded(False, Refusal(error.code, error.message, maybe_written=True))
        except SteleError as error:
            self._is_committing = False
            await self.producer.abort_after(error)
            return TransactionEnded(False, refusal_of(error, accepted=False))
        if is_commit and lacks is not None:
            return TransactionEnded(False, lacks)
        return TransactionEnded(is_commit)

    async def close(self) -> None:
        """The stream has ended. A commit that was cut off may have reached the coordinator or not.
        So it is asked for again: nothing else would end the transaction before its time-out. Any
        other open transaction is aborted."""
        if self._is_committing:
            try:
                await self.producer.commit_transaction()
            except SteleError as error:
                logger.warning("a commit that a stream had asked for failed: %s", error)
        await self.producer.close()
