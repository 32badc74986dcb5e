"""The errors of storage besides ``OSError`` and ``ApiError``."""

from __future__ import annotations

import enum
import errno
from typing import Final

from stele.errors import ApiError, ErrorCode, SteleError
from world.disk import ReadFailedError, SyncFailedError


class Failure(enum.Enum):
    """The kinds of a disk's ``OSError``, and what each stops. All other code uses this table.

    ============  ==========================================  ====================================
    kind          errors                                      what stops
    ============  ==========================================  ====================================
    ``DEVICE``    ENXIO, ENODEV, EROFS, ESTALE, ENOMEDIUM,    the directory goes offline, or the
                  ETIMEDOUT, ENOLINK, ESHUTDOWN, ENOTCONN;    voter ends
                  those of ``MEDIUM`` unless of a read; and
                  every sync that began and failed
    ``MEDIUM``    of a read: EIO, EUCLEAN, EBADMSG, EILSEQ,   the replica, which is fetched again
                  ENODATA, EREMOTEIO                          from its peers
    ``SPACE``     ENOSPC, EDQUOT, EFBIG                       the one write, until there is room
    ``SHORTAGE``  EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN,    the one request: this process or
                  EINTR, EBUSY, ECHILD                        machine lacks something just now
    ``REQUEST``   all others, such as ENAMETOOLONG, ENOENT,   the one request: it cannot be carried
                  EACCES, EINVAL                              out as it was made
    ============  ==========================================  ====================================
    """

    DEVICE = "the device failed"
    MEDIUM = "a part of the device cannot be read"
    SPACE = "there is no room"
    SHORTAGE = "the process or the machine lacks something"
    REQUEST = "the request cannot be carried out"

    @classmethod
    def of(cls, error: OSError) -> Failure:
        """The kind of an error."""
        if isinstance(error, SyncFailedError):
            return cls.DEVICE
        kind = _KINDS.get(error.errno or errno.EIO, cls.REQUEST)
        if kind is cls.MEDIUM and not isinstance(error, ReadFailedError):
            return cls.DEVICE
        return kind


_KINDS: Final[dict[int, Failure]] = {
    number: kind
    for kind, names in (
        (
            Failure.DEVICE,
            "ENXIO ENODEV EROFS ESTALE ENOMEDIUM ETIMEDOUT ENOLINK ESHUTDOWN ENOTCONN",
        ),
        (Failure.MEDIUM, "EIO EUCLEAN EBADMSG EILSEQ ENODATA EREMOTEIO"),
        (Failure.SPACE, "ENOSPC EDQUOT EFBIG"),
        (Failure.SHORTAGE, "EMFILE ENFILE ENOMEM ENOBUFS EAGAIN EINTR EBUSY ECHILD"),
    )
    for name in names.split()
    if (number := getattr(errno, name, None)) is not None  # macOS lacks some
}


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed because the disk is full. It may succeed later."""
    return Failure.of(error) is Failure.SPACE


def is_device_failure(error: OSError) -> bool:
    """Whether the directory must go offline, because nothing in it can be relied upon any more."""
    return Failure.of(error) is Failure.DEVICE


def words_of(error: OSError) -> str:
    """What happened, without number and path."""
    return error.strerror or str(error)


def is_unreadable(error: OSError) -> bool:
    """Whether a read failed because of the medium. Another replica may have the bytes."""
    return Failure.of(error) is Failure.MEDIUM


class CorruptLogError(SteleError):
    """A log holds other bytes than were written, and a torn write does not explain it.

    The log must not be used. The replica of a partition leaves ISR and ELR and is fetched again. A
    voter with a corrupt metadata log refuses to start.
    """

    def __init__(self, path: str, *, position: int, offset: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position} (offset {offset}): {reason}")
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason


class UnreadableLogError(CorruptLogError):
    """A part of a log cannot be read. Unlike a corrupt log, its other parts may be served."""


class CutShortError(UnreadableLogError):
    """A change of a log was cut short, and the disk is not at fault. This process does not know the
    contents of the files. Recovery at the next start finds them out, so nothing on disk says that
    the log is corrupt."""


class LogDirectoryError(SteleError):
    """A log directory cannot be used. The message is one line and says what to do."""


class UnusableDirectoryError(LogDirectoryError):
    """The disk of a log directory is broken, not mounted or not formatted. A broker can use its
    other directories meanwhile."""


class OutOfOrderOffsetsError(SteleError):
    """A batch that has its offset already does not follow the log's end."""


class StorageError(ApiError):
    """KAFKA_STORAGE_ERROR: the disk failed or is full, or the log is offline."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
