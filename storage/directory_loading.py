"""The opening of all logs of a directory: what is found there, and how the last process ended.

A full disk keeps no directory and hardly any log from opening, so that readers go on. An opening
removes, renames and truncates, which needs no room. Of what it writes:

- The lowered recovery points wait for the next checkpoint with room. What the old file claims is on
  disk. A truncation below it lowers it first, or waits for room, too.
- Indexes of sealed segments stay in memory, and their files go (``SegmentIndexes.hold``). The index
  files of the active segment may lack entries.
- A producer snapshot is left out. The note of a corrupt log is left to the next process, which
  finds the log corrupt again.
- ``.incarnations`` lacks this process while there is no room, and the registration says so
  (``directories_marked``).
- The leader epoch file and the mark of a clean shutdown are not written by an opening, nor are
  ``meta.properties`` and topic ids.
- Entries of a transaction index that a power loss took must be written again. Otherwise aborted
  records would be read. If they find no room, that log alone is given up until the next start,
  without a mark on disk (``CutShortError``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from stele.ids import TopicPartition
from stele.world import Clock
from storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    PARTITION_METADATA_FILE,
    decode_clean_shutdown,
    read_partition_metadata,
)
from storage.copies import is_unfinished_copy
from storage.corrupt_logs import CorruptLogs
from storage.directory_names import CORRUPT_SUFFIX, METADATA_TOPIC, parse_partition_directory
from storage.errors import (
    CorruptLogError,
    CutShortError,
    Failure,
    UnreadableLogError,
    is_unreadable,
)
from storage.log import PartitionLog
from storage.offset_checkpoints import OffsetCheckpoints
from storage.steps import Steps, Sync, Turn
from world.disk import Disk

logger = logging.getLogger(__name__)

_PROGRESS_INTERVAL_S: Final = 5.0  # between two messages about the progress

_OF_THE_DIRECTORY: Final = (Failure.DEVICE, Failure.SHORTAGE)
"""Errors that say nothing of the one log which met them. A log that finds no room is another case:
nearly all logs open on a full disk, since recovery writes little that it cannot do without."""

Opening = Callable[[TopicPartition, bytes], Steps[PartitionLog]]
"""The steps that open the log of a topic id."""


class DirectoryLogs(NamedTuple):
    """The logs of a directory, in one of these states."""

    sound: dict[TopicPartition, PartitionLog]
    corrupt: CorruptLogs
    half_made: dict[TopicPartition, bytes | None]
    unfinished_copies: dict[TopicPartition, bytes | None]


class DirectoryLoading:
    """Opens each log once, in the order of the names."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        clock: Clock,
        checkpoints: OffsetCheckpoints,
        logs: DirectoryLogs,
        opening: Opening,
    ) -> None:
        """Adds the found logs to ``logs``."""
        self.clean_shutdown = False
        """Whether the last process that used the directory closed it."""
        self.previous_broker_epoch = -1
        """The broker epoch of that process if it closed the directory."""
        self._disk = disk
        self._path = path
        self._clock = clock
        self._checkpoints = checkpoints
        self._logs = logs
        self._opening = opening
        self._loading_log = 0, 0  # (logs opened so far, all logs)

    @property
    def progress(self) -> str:
        """As text for people."""
        what = "opening" if self.clean_shutdown else "recovering"
        number, count = self._loading_log
        return f"{self._path}: {what} log {number} of {count}"

    def steps(self) -> Steps[None]:
        """Raises OSError. If they are interrupted, the directory is as it was before."""
        self._read_clean_shutdown()
        self._checkpoints.load()
        yield from self._load_logs(self._partitions())
        if self.clean_shutdown:
            # Until here a clean opening has written nothing that the next one must know of. From
            # here on it writes, so a crash is no clean shutdown any more.
            self._disk.remove(f"{self._path}/{CLEAN_SHUTDOWN_FILE}")
            yield Sync((self._path,))
        self._checkpoints.lower_to_high_watermarks()

    def _read_clean_shutdown(self) -> None:
        path = f"{self._path}/{CLEAN_SHUTDOWN_FILE}"
        if self._disk.exists(path):
            self.previous_broker_epoch = decode_clean_shutdown(self._disk.read_file(path))
            self.clean_shutdown = True

    def _partitions(self) -> list[TopicPartition]:
        partitions: list[TopicPartition] = []
        for name in self._disk.list(self._path):
            if name.endswith(CORRUPT_SUFFIX):
                path = f"{self._path}/{name}"
                logger.warning("%s was found corrupt earlier and is kept aside", path)
                continue
            partition = parse_partition_directory(name)
            if partition is not None and partition.topic != METADATA_TOPIC:
                partitions.append(partition)
        return partitions

    def _load_logs(self, partitions: list[TopicPartition]) -> Steps[None]:
        told_s = self._clock.monotonic()
        for number, partition in enumerate(partitions, start=1):
            self._loading_log = number, len(partitions)
            yield from self._load_log(partition)
            yield Turn.OVER
            now_s = self._clock.monotonic()
            if now_s - told_s >= _PROGRESS_INTERVAL_S:
                told_s = now_s
                logger.info("%s", self.progress)

    def _load_log(self, partition: TopicPartition) -> Steps[None]:
        directory = f"{self._path}/{partition}"
        corrupt = self._logs.corrupt
        topic_id: bytes | None = None
        found: CorruptLogError | None = None
        try:
            topic_id = read_partition_metadata(self._disk, f"{directory}/{PARTITION_METADATA_FILE}")
            if is_unfinished_copy(self._disk, directory):
                logger.info("%s is an unfinished copy of a log in another directory", directory)
                self._logs.unfinished_copies[partition] = topic_id
                return
            if (found := corrupt.noted(partition)) is not None:
                raise found
            if topic_id is None:
                self._without_topic_id(partition)
            else:
                self._logs.sound[partition] = yield from self._opening(partition, topic_id)
        except CorruptLogError as error:
            logger.error("%s", error)
            corrupt.hold(partition, error, topic_id, is_noted=found is not None)
        except Exception as failure:
            if isinstance(failure, OSError) and Failure.of(failure) in _OF_THE_DIRECTORY:
                raise
            unopened = _unopened(directory, failure)
            logger.error("%s", unopened, exc_info=failure)
            corrupt.hold(partition, unopened, topic_id)

    def _without_topic_id(self, partition: TopicPartition) -> None:
        """A log has no topic id, so it may be of a deleted topic of that name.

        The first sync of a log covers its topic id, and nothing is acknowledged before. Raises
        CorruptLogError if a checkpoint proves that there was such a sync.
        """
        directory = f"{self._path}/{partition}"
        if self._checkpoints.know(partition):
            reason = "partition.metadata is gone: the topic of these records is not known"
            raise CorruptLogError(directory, position=0, offset=-1, reason=reason)
        logger.warning("%s has no topic id, and was never on disk: it will begin empty", directory)
        self._logs.half_made[partition] = None


def _unopened(directory: str, failure: Exception) -> CorruptLogError:
    """The fault of a log that does not open, whatever it met. Only bytes that cannot be read are
    noted on disk. Anything else may be a fault of this program, and the next start tries again."""
    if isinstance(failure, OSError) and is_unreadable(failure):
        reason = f"it cannot be read: {failure}"
        return UnreadableLogError(directory, position=0, offset=-1, reason=reason)
    reason = f"it cannot be opened: {type(failure).__name__}: {failure}"
    return CutShortError(directory, position=0, offset=-1, reason=reason)
