"""Whether one log can be written and read, and the effect of disk errors on that."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from stele.errors import SteleError
from storage.errors import (
    StorageError,
    UnreadableLogError,
    is_device_failure,
    is_unreadable,
    words_of,
)

logger = logging.getLogger(__name__)


class Availability:
    """The availability of one log. Its disk errors are reported here. The methods return the error
    to raise."""

    __slots__ = ("_close_files", "_directory", "_on_failed", "offline")

    def __init__(
        self,
        directory: str,
        close_files: Callable[[], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """``on_failed`` is called once, when an error of this log takes it offline."""
        self._directory = directory
        self._close_files = close_files
        self._on_failed = on_failed
        self.offline: OSError | None = None
        """Why the log is offline. None while it is not."""

    def check(self) -> None:
        """Raises StorageError if the log is offline."""
        if self.offline is not None:
            raise StorageError(f"{self._directory} is offline: {self.offline}")

    def go_offline(self, error: OSError) -> None:
        """Refuse all reads and writes from now on."""
        if self.offline is None:
            self.offline = error
            self._close_files()

    def failure(self, error: OSError) -> StorageError:
        """Go offline, report it, and return the error to raise. The device failed, or an operation
        was only half done, which recovery repairs at the next start."""
        logger.error("%s fails: %s", self._directory, error)
        self.go_offline(error)
        self._on_failed(error)
        return StorageError(f"{self._directory}: {error}")

    def broken(self, error: Exception) -> StorageError:
        """As ``failure``, for an error that does not come from the disk: a fault of this program,
        or unexpected content, cut a change short."""
        logger.error("%s: a change was cut short", self._directory, exc_info=error)
        return self.failure(OSError(errno.ENOTRECOVERABLE, f"{type(error).__name__}: {error}"))

    def refusal(self, error: OSError) -> StorageError:
        """The error to raise if the operation changed nothing. The log goes offline only if the
        device failed."""
        if is_device_failure(error):
            return self.failure(error)
        return StorageError(f"{self._directory}: {error}; nothing was changed")

    def unread(self, error: OSError, path: str, position: int, offset: int) -> SteleError:
        """The error to raise after a failed read of the file ``path`` at byte ``position``."""
        if is_unreadable(error):
            reason = f"it cannot be read: {words_of(error)}"
            return UnreadableLogError(path, position=position, offset=offset, reason=reason)
        return self.refusal(error)
