"""Faults of record batches, as errors with the protocol's codes."""

from __future__ import annotations

from typing import NamedTuple

from stele.errors import ApiError, ErrorCode


class BatchError(ApiError):
    """A record batch that cannot be accepted. ``code`` is the protocol's answer."""


class RecordError(NamedTuple):
    """A record that a leader rejects, and its batch with it."""

    number: int  # in the batch, from 0
    code: ErrorCode
    reason: str


class RejectedRecordsError(BatchError):
    """A batch that can be read, with records that its topic does not take. A producer may send the
    others again. ``record_errors`` names the rejected ones, or the first of many."""

    def __init__(self, record_errors: tuple[RecordError, ...]) -> None:
        """As in Kafka the code is INVALID_TIMESTAMP if any record has it."""
        first = record_errors[0]
        for each in record_errors:
            if each.code is ErrorCode.INVALID_TIMESTAMP:
                first = each
                break
        count = len(record_errors)
        others = "" if count == 1 else f"{count} records are rejected. "
        super().__init__(first.code, f"{others}Record {first.number}: {first.reason}")
        self.record_errors = record_errors


class CorruptBatchError(BatchError):
    """Bytes that are not a record batch, or are damaged."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class PartialBatchError(CorruptBatchError):
    """The buffer ends before the batch does."""


class UnsupportedMagicError(BatchError):
    """A message set in the format before record batches (magic 0 or 1)."""

    def __init__(self, magic: int) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"magic {magic}, only 2 is known"
        )
