"""What is wrong with a record batch, as errors that carry the protocol's code."""

from __future__ import annotations

from stele.errors import ApiError, ErrorCode


class BatchError(ApiError):
    """A record batch that cannot be taken; ``code`` is what the protocol answers for it."""


class CorruptBatchError(BatchError):
    """Bytes that are not a record batch, or not the one that was written."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class PartialBatchError(CorruptBatchError):
    """The buffer ends before the batch does."""


class UnsupportedMagicError(BatchError):
    """A message set of a format before record batches (magic 0 and 1)."""

    def __init__(self, magic: int) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"magic {magic}, only 2 is known"
        )
