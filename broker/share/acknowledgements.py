"""What the acknowledgement batches of a member say, offset by offset, as runs of one type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from broker.share.values import AcknowledgementBatch, AcknowledgeType
from stele.errors import ApiError, ErrorCode


class Run(NamedTuple):
    """One type for the records from ``first`` to ``last``."""

    first: int
    last: int
    type: AcknowledgeType


def check(batches: Sequence[AcknowledgementBatch]) -> None:
    """Raises ApiError INVALID_REQUEST unless the batches are in order, as Kafka asks for."""
    before = -1
    for batch in batches:
        if not before < batch.first <= batch.last:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"acknowledgement of offsets {batch.first} to {batch.last} after {before}: "
                "batches must ascend without overlapping",
            )
        count = batch.last - batch.first + 1
        if len(batch.types) not in (1, count):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{len(batch.types)} acknowledge types for {count} offsets from {batch.first} on: "
                "there must be one, or one for each offset",
            )
        before = batch.last


def runs_of(batches: Sequence[AcknowledgementBatch], start_offset: int) -> Iterator[Run]:
    """The runs from ``start_offset`` on. What lies before it is decided already."""
    for first, last, types in batches:
        if last < start_offset:
            continue
        if len(types) == 1:
            yield Run(max(first, start_offset), last, types[0])
            continue
        at = first
        for kind, same in groupby(types):
            end = at + sum(1 for _ in same)
            if end > start_offset:
                yield Run(max(at, start_offset), end - 1, kind)
            at = end
