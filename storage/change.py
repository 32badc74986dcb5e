"""One change of a log while it is made: an append, a marker, a truncation."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from storage.availability import Availability
from storage.durability import Durability
from storage.errors import CorruptLogError, StorageError, is_disk_full, is_unreadable
from storage.leader_epochs import LeaderEpochs
from storage.log_transactions import LogTransactions
from storage.log_types import LogView
from storage.producer_files import ProducerFiles


class ChangingLog(LogView, Protocol):
    """A log as its changes see it (``storage.appending``, ``storage.cutting``), which keep all of
    this in accord."""

    epochs: LeaderEpochs
    transactions: LogTransactions
    durability: Durability
    producer_files: ProducerFiles
    dropped_end: int
    ask_high_watermark: Callable[[], int]


class LogChange:
    """The change of a log that is being made. It alone judges what an error has left behind.

    - Until ``has_begun``, nothing counts as changed. What was prepared is taken back by ``undo``.
      The error is a refusal, and the log goes on.
    - From then on the files may hold what the log does not know. The log goes offline, and recovery
      at the next start finds out what is there.

    A log has one such object, as it makes one change at a time.
    """

    __slots__ = ("_availability", "_directory", "_refused", "_size_bytes", "has_begun", "undo")

    def __init__(
        self, directory: str, availability: Availability, refused: Callable[[int], None]
    ) -> None:
        """``refused`` gets the size of a write for which the disk has no room."""
        self._directory = directory
        self._availability = availability
        self._refused = refused
        self._size_bytes: int | None = None
        self.has_begun = False
        self.undo: Callable[[], None] | None = None
        """Undoes the writes before the change itself. It may raise OSError."""

    def prepare(self, size_bytes: int | None = None) -> None:
        """A change comes: a write of so many bytes, or None for one that frees space. Raises
        StorageError if the log is offline."""
        self._availability.check()
        self._size_bytes = size_bytes
        self.has_begun = False
        self.undo = None

    def fail(self, error: Exception, end_offset: int) -> None:
        """The change was not completed. Leaves the log as it was before, or takes it offline. Then
        raises the error for the caller. Returns if ``error`` is that error already and should be
        raised. ``end_offset`` is the log's, for the text."""
        if self.has_begun:
            self._cut_short(error, end_offset)
            return
        if self.undo is not None:
            try:
                self.undo()
            except OSError as second:
                raise self._availability.failure(second) from second
        if not isinstance(error, OSError):
            return
        if is_unreadable(error):
            raise self._availability.unread(error, self._directory, 0, end_offset) from error
        if self._size_bytes is None or not is_disk_full(error):
            raise self._availability.refusal(error) from error
        self._refused(self._size_bytes)
        raise StorageError(
            f"{self._directory}: {error.strerror}; nothing was written; free space or "
            "lower retention.ms or retention.bytes"
        ) from error

    def _cut_short(self, error: Exception, end_offset: int) -> None:
        """A part of the log that cannot be read, or is wrong, costs the replica: the caller of the
        change reports it. Every other error is reported here."""
        availability = self._availability
        if isinstance(error, CorruptLogError):
            availability.go_offline(OSError(errno.ENOTRECOVERABLE, str(error)))
            return
        if not isinstance(error, OSError):
            raise availability.broken(error) from error
        if is_unreadable(error):
            availability.go_offline(error)
            raise availability.unread(error, self._directory, 0, end_offset) from error
        raise availability.failure(error) from error
