"""Decides whether a partition takes a producer that it does not know.

A partition remembers each producer until it was idle for ``producer.id.expiration.ms``. So a client
with a new producer id for each batch would fill the memory. A full partition refuses new producers
and forgets none before its time: a producer that was forgotten may repeat a batch, and the
partition would append it again.

The refusal is NOT_ENOUGH_REPLICAS, because every client repeats a batch after it. librdkafka gives
a batch up after THROTTLING_QUOTA_EXCEEDED. The message says the true reason.

A producer has several batches in flight, and a partition takes an unknown producer with any
sequence. Example: sequence 0 is refused, a producer expires, and sequence 1 comes. If it were
appended, sequence 0 could never come before it. So a refused producer begins with the batch that
was refused first. A producer that gives this batch up comes again with another epoch.
"""

from __future__ import annotations

from typing import Final

from stele.errors import ApiError, ErrorCode
from stele.wire.batch import BatchHeader

REFUSED_MAX: Final = 1024
"""The most refused producers of a partition that are remembered; the oldest are forgotten."""


class UnknownProducerRefusedError(ApiError):
    """The partition takes no producer that it does not know yet, or not with this batch."""


class ProducerAdmission:
    """The refused producers of one partition."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        # By producer id: epoch and base sequence of the batch that was refused first.
        self._refused: dict[int, tuple[int, int]] = {}

    def check(self, header: BatchHeader, known: int, most: int) -> None:
        """``known``: how many other producers the partition remembers.
        ``most``: the most that it may remember. Raises UnknownProducerRefusedError."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        first = self._refused.get(producer_id)
        if first is not None and first[0] < epoch:
            first = None  # the producer has begun anew
        if known >= most:
            if first is None:
                self._remember(producer_id, (epoch, header.base_sequence))
            raise UnknownProducerRefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the partition remembers {known} producers, producer.ids.max is {most}, and "
                f"producer {producer_id} is new. A producer is forgotten when it was idle for "
                "producer.id.expiration.ms. Use producers for longer than a few batches",
            )
        if first is not None and first != (epoch, header.base_sequence):
            raise UnknownProducerRefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"sequence {header.base_sequence} of producer {producer_id} came, and sequence "
                f"{first[1]} was refused before. The partition had no room for a new producer then",
            )
        if self._refused:
            self._refused.pop(producer_id, None)

    def _remember(self, producer_id: int, first: tuple[int, int]) -> None:
        self._refused.pop(producer_id, None)
        if len(self._refused) >= REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[producer_id] = first
