"""The corrupt logs of a directory, which must not be used, and the notes on disk that say so."""

from __future__ import annotations

import logging

from stele.ids import TopicPartition
from storage.checkpoints import CORRUPT_FILE, encode_corrupt, read_corrupt
from storage.errors import CorruptLogError, CutShortError, words_of
from world.disk import Disk

logger = logging.getLogger(__name__)


class CorruptLogs:
    """Corrupt logs by name. They are held until they are set aside."""

    __slots__ = ("_disk", "_path", "_unnoted", "errors", "topic_ids")

    def __init__(self, disk: Disk, path: str) -> None:
        """``path`` is the log directory."""
        self.errors: dict[TopicPartition, CorruptLogError] = {}
        self.topic_ids: dict[TopicPartition, bytes | None] = {}
        """The topic ids of the same logs; None for a log that has lost its topic id."""
        self._disk = disk
        self._path = path
        self._unnoted: set[TopicPartition] = set()
        """Logs without a note: it could not be written, or recovery is to repair the log."""

    def noted(self, key: TopicPartition) -> CorruptLogError | None:
        """The fault that an earlier process has recorded for a log, or None. Raises OSError."""
        return read_corrupt(self._disk, self._note(key))

    def hold(
        self,
        key: TopicPartition,
        error: CorruptLogError,
        topic_id: bytes | None,
        *,
        is_noted: bool = False,
    ) -> None:
        """Remember a fault until the log is set aside, also in a note on disk. The next start may
        not read the corrupt place: after a clean shutdown, or below the recovery point. A change
        that was cut short has no note: the next start recovers, and thereby completes or undoes
        it."""
        self.errors[key] = error
        self.topic_ids[key] = topic_id
        if is_noted:
            return
        if isinstance(error, CutShortError):
            self._unnoted.add(key)
            return
        try:
            self._disk.replace_file_now(self._note(key), encode_corrupt(error))
        except OSError as failure:
            self._unnoted.add(key)
            logger.error("%s cannot be written: %s", self._note(key), words_of(failure))

    def forget(self, key: TopicPartition) -> None:
        """The log was set aside, together with its note."""
        self.errors.pop(key, None)
        self.topic_ids.pop(key, None)
        self._unnoted.discard(key)

    @property
    def all_are_noted(self) -> bool:
        """Whether every fault is noted on disk. If not, the next start must recover, to find the
        others again or to repair them."""
        return not self._unnoted

    def _note(self, key: TopicPartition) -> str:
        return f"{self._path}/{key}/{CORRUPT_FILE}"
