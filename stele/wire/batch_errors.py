"""Faults of record batches, as errors with the protocol's codes."""

from __future__ import annotations

from stele.errors import ApiError, ErrorCode


class BatchError(ApiError):
    """A record batch that cannot be accepted. ``code`` is the protocol's answer."""


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
