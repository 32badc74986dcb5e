"""Whether one log takes and gives anything, and what an error of the disk does to that."""

from __future__ import annotations

import logging
from collections.abc import Callable

from stele.errors import SteleError
from storage.errors import StorageError, UnreadableLogError, is_device_failure, is_unreadable

logger = logging.getLogger(__name__)


class Availability:
    """The availability of one log. Errors of its disk are reported here; the answers say what to
    raise."""

    __slots__ = ("_close_files", "_directory", "_on_failed", "offline")

    def __init__(
        self,
        directory: str,
        close_files: Callable[[], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """``on_failed`` is called once the log is offline for an error of its own."""
        self._directory = directory
        self._close_files = close_files
        self._on_failed = on_failed
        self.offline: OSError | None = None
        """Why the log takes and gives nothing any more."""

    def check(self) -> None:
        """Raises StorageError if it is offline."""
        if self.offline is not None:
            raise StorageError(f"{self._directory} is offline: {self.offline}")

    def go_offline(self, error: OSError) -> None:
        """Take and give nothing any more."""
        if self.offline is None:
            self.offline = error
            self._close_files()

    def failure(self, error: OSError) -> StorageError:
        """Go offline, report it, and return what to raise. The device failed, or an operation was
        half done, which recovery sets right at the next start."""
        logger.error("%s fails: %s", self._directory, error)
        self.go_offline(error)
        self._on_failed(error)
        return StorageError(f"{self._directory}: {error}")

    def refusal(self, error: OSError) -> StorageError:
        """The error to raise when nothing was done. The log goes on unless the device failed."""
        if is_device_failure(error):
            return self.failure(error)
        return StorageError(f"{self._directory}: {error}; nothing was changed")

    def unread(self, error: OSError, path: str, position: int, offset: int) -> SteleError:
        """The error to raise when a read failed."""
        if is_unreadable(error):
            reason = f"it cannot be read: {error.strerror or error}"
            return UnreadableLogError(path, position=position, offset=offset, reason=reason)
        return self.refusal(error)
