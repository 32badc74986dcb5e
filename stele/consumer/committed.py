"""Which fetched batches a reader of committed records leaves out (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Protocol

from stele.wire.batch import BatchHeader


class AbortedTransaction(Protocol):
    """From ``first_offset`` on, the producer's transactional batches are of an aborted transaction,
    up to its next marker."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class AbortedRecords:
    """The aborted transactions of one answer. It is asked about the batches of that answer, in
    their order.

    A broker answers all aborted transactions that have a record in the answer, and no batch at or
    above the last stable offset. So every other transaction in it is committed.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Those that are still to come, the last one first.
        self._coming = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        # The producers whose transactional batches belong to an aborted transaction at the moment.
        # A producer has one transaction at a time in a partition.
        self._open: set[int] = set()

    def has(self, header: BatchHeader) -> bool:
        """Whether the batch is of an aborted transaction. A marker, which is no record, is not."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._open.add(self._coming.pop().producer_id)
        if header.producer_id not in self._open or not header.is_transactional:
            return False
        if header.is_control:
            self._open.remove(header.producer_id)
            return False
        return True
