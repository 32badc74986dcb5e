"""The records that a producer could not deliver, until a call tells the application."""

from __future__ import annotations

import logging

from stele.errors import SteleError, TransactionAbortableError, TransactionAbortedError
from stele.producer.accumulator import PendingBatch

log = logging.getLogger(__name__)


class Failures:
    """The failures since the last ``flush``: how many records, and the first cause."""

    def __init__(self) -> None:
        self._records = 0
        self._first: SteleError | None = None

    def note(self, batch: PendingBatch, cause: SteleError) -> None:
        """The calls of a transaction raise the errors of a transaction that lost records, so
        these do not count."""
        level = logging.DEBUG if isinstance(cause, TransactionAbortedError) else logging.ERROR
        log.log(level, "%d records for %s: %s", batch.record_count, batch.partition, cause)
        if isinstance(cause, TransactionAbortedError | TransactionAbortableError):
            return
        self._records += batch.record_count
        if self._first is None:
            self._first = cause

    def forget(self) -> None:
        """The application learns of them otherwise."""
        self._records, self._first = 0, None

    def raise_first(self) -> None:
        """Raise the first cause, once."""
        cause, records = self._first, self._records
        self.forget()
        if cause is not None:
            cause.add_note(f"{records} records were not delivered since the last flush")
            raise cause
