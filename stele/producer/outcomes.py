"""What became of the records of a batch, and who hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from stele.records import RecordMetadata

_make: Final = tuple.__new__  # one for each future: the named call costs twice as much


class BatchOutcome:
    """The outcome of a whole batch. The metadata of a record is made when somebody asks for it."""

    __slots__ = ("_base_offset", "_partition", "_times_ms", "_topic", "error")

    def __init__(
        self,
        topic: str,
        partition: int,
        base_offset: int,
        times_ms: Sequence[int],
        error: BaseException | None = None,
    ) -> None:
        """``base_offset`` -1: the broker did not tell it. ``times_ms`` are those of all records."""
        self._topic = topic
        self._partition = partition
        self._base_offset = base_offset
        self._times_ms = times_ms
        self.error = error  # if set, no record was acknowledged

    @staticmethod
    def failed(error: BaseException) -> BatchOutcome:
        return BatchOutcome("", -1, -1, (), error)

    def metadata(self, number: int) -> RecordMetadata:
        """The metadata of the record with this number in the batch."""
        offset = self._base_offset + number if self._base_offset >= 0 else -1
        made: RecordMetadata = _make(
            RecordMetadata, (self._topic, self._partition, offset, self._times_ms[number])
        )
        return made


class Receipt(Protocol):
    """Hears of the outcome of one record, at a fraction of a future's cost."""

    def settle(self, outcome: BatchOutcome, number: int) -> None:
        """The record with this number in the batch was acknowledged or has failed."""
        ...


Delivery = asyncio.Future[RecordMetadata]

Waiting = Delivery | Receipt
"""Whatever hears of the outcome of one record."""


def settle_all(waiting: Sequence[Waiting | None], outcome: BatchOutcome) -> None:
    """Tell the outcome of a batch, whose records these wait for, in the order of the records."""
    for number, each in enumerate(waiting):
        if each is None:
            continue
        if not isinstance(each, asyncio.Future):
            each.settle(outcome, number)
        elif not each.done():
            if outcome.error is None:
                each.set_result(outcome.metadata(number))
            else:
                each.set_exception(outcome.error)
                each.exception()  # ``flush`` and ``close`` raise it, too
