"""What storage raises beside ``OSError`` and ``ApiError``."""

from __future__ import annotations

import errno
from typing import Final

from stele.errors import ApiError, ErrorCode, SteleError

_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for want of space: it may succeed later, unlike a failed disk's.

    Not to be asked of a sync: that one is never tried again, whatever the reason.
    """
    return error.errno in _DISK_FULL


class CorruptLogError(SteleError):
    """A log holds something else than was written, and no torn write explains it.

    The replica must not serve or vote from what is there: it leaves ISR and ELR and is fetched
    again (a partition), or its voter refuses to start (the metadata log).
    """

    def __init__(self, path: str, *, position: int, offset: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position} (offset {offset}): {reason}")
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason


class LogDirectoryError(SteleError):
    """A log directory cannot be used; the message is one line and says what to do."""


class OutOfOrderOffsetsError(SteleError):
    """A batch to be appended as it stands does not follow the log's end."""


class StorageError(ApiError):
    """KAFKA_STORAGE_ERROR: the disk failed or is full, or the log is offline."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
