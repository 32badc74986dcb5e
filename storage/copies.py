"""The unfinished copies in one directory of logs that are in use in another one (KIP-113).

A copy has the name of its log. A note in it, ``copy-under-way``, says that it is no log yet. The
note is on disk before anything else of the copy is. When the copy takes the place of the log, the
note gets the name ``copied`` (one rename), and only when that is on disk the old log is set aside.
So whatever a crash leaves of these changes, exactly one of the two is the log:

==================== ==================================================
note in the copy     what the next opening does
==================== ==================================================
``copy-under-way``   the old log is the log; the copy is not opened
``copied``           the copy is the log; the old one is set aside
==================== ==================================================

Kafka has no notes. It names the copy ``<name>.<id>-future`` and renames two directories on two
devices, and a crash between the renames leaves two logs of one name.

``copied`` stays in the log until it is to be copied again: an old log may come back when its device
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from stele.ids import TopicPartition
from storage.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from storage.config import LogConfig
from storage.errors import StorageError
from storage.formatted import make_within
from storage.log import PartitionLog
from storage.offset_checkpoints import OffsetCheckpoints
from storage.steps import Steps, finish
from world.disk import Disk

COPY_FILE: Final = "copy-under-way"
COPIED_FILE: Final = "copied"

SetAside = Callable[[TopicPartition, bytes | None], None]
"""Renames the directory of a name, with a topic id if it is known. Raises StorageError."""

Opening = Callable[[TopicPartition, LogConfig, bytes, int], Steps[PartitionLog]]
"""Opens a log of a topic id. One that is new begins at the offset."""


class LogsAndCopies:
    """The logs of a directory and its open copies: both are synced and checkpointed."""

    def __init__(
        self,
        logs: dict[TopicPartition, PartitionLog],
        copies: dict[TopicPartition, PartitionLog],
    ) -> None:
        """Both change meanwhile."""
        self._logs = logs
        self._copies = copies

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._logs or key in self._copies

    def get(self, key: TopicPartition) -> PartitionLog | None:
        return self._logs.get(key) or self._copies.get(key)

    def values(self) -> Iterable[PartitionLog]:
        return [*self._logs.values(), *self._copies.values()]


def is_unfinished_copy(disk: Disk, directory: str) -> bool:
    """Whether a directory with a log's name holds an unfinished copy."""
    return disk.exists(f"{directory}/{COPY_FILE}")


class Copies:
    """The unfinished copies of one directory. A copy belongs to the directory as its logs do: it is
    synced with them, and has its own entries in the checkpoints.

    A directory holds a log of a name or a copy, never both.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        checkpoints: OffsetCheckpoints,
        opening: Opening,
        set_aside: SetAside,
        refusal: Callable[[str, OSError], StorageError],
        on_dropped: Callable[[PartitionLog], None],
        logs: dict[TopicPartition, PartitionLog],
        half_made: dict[TopicPartition, bytes | None],
        open_copies: dict[TopicPartition, PartitionLog],
    ) -> None:
        """``logs``, ``half_made`` and ``open_copies`` are the directory's own collections.
        ``refusal`` makes an error of what was tried and of the cause. ``on_dropped``: the copy
        needs no more syncs."""
        self.open = open_copies
        """Copies that are being filled."""
        self.left: dict[TopicPartition, bytes | None] = {}
        """Copies on disk that are not open, with their topic ids if these are known: they are set
        aside before anything else gets the name."""
        self._disk = disk
        self._path = path
        self._checkpoints = checkpoints
        self._opening = opening
        self._set_aside = set_aside
        self._refusal = refusal
        self._on_dropped = on_dropped
        self._logs = logs
        self._half_made = half_made

    def clear(self, key: TopicPartition) -> None:
        """Set aside the remainder of a copy of that name. Raises StorageError."""
        if key in self.left:
            self._set_aside(key, self.left[key])
            del self.left[key]

    async def begin(
        self, key: TopicPartition, topic_id: bytes, config: LogConfig, start_offset: int = 0
    ) -> PartitionLog:
        """Make an empty copy that begins at an offset, and whose note is on disk. The remainder of
        an earlier copy is set aside.

        Raises StorageError: there is no copy then.
        """
        directory = f"{self._path}/{key}"
        self.drop(key)
        self.clear(key)
        if key in self._half_made:  # a power loss has left the directory, and not the note in it
            self._set_aside(key, self._half_made[key])
            del self._half_made[key]
        if self._disk.exists(directory):
            raise StorageError(f"{directory} is there already")
        try:
            return await self._begin(key, directory, topic_id, config, start_offset)
        except OSError as error:
            raise self._refusal(f"{directory} cannot be made", error) from error

    async def _begin(
        self,
        key: TopicPartition,
        directory: str,
        topic_id: bytes,
        config: LogConfig,
        start_offset: int,
    ) -> PartitionLog:
        # Checkpoints of an earlier log of that name must not apply to this one.
        self._checkpoints.lower(key, 0)
        self.left[key] = topic_id
        make_within(self._disk, self._path, directory)
        note = f"{directory}/{COPY_FILE}"
        self._write(note, b"")
        await self._disk.sync([note, directory, self._path])
        if key not in self.left:
            raise StorageError(f"{directory}: its name was needed for a log meanwhile")
        self._write(f"{directory}/{PARTITION_METADATA_FILE}", encode_partition_metadata(topic_id))
        copy = finish(self._disk, self._opening(key, config, topic_id, start_offset))
        del self.left[key]
        self.open[key] = copy
        self._checkpoints.changed(key)
        return copy

    def _write(self, path: str, data: bytes) -> None:
        file = self._disk.open(path, create=True)
        try:
            if data:
                file.append([data])
        finally:
            file.close()

    def drop(self, key: TopicPartition) -> None:
        """Close a copy and set it aside. Raises StorageError: then it is in ``left``."""
        copy = self.open.pop(key, None)
        self._checkpoints.changed(key)
        if copy is not None:
            self._on_dropped(copy)
            copy.close()
            self.left[key] = copy.topic_id
            self.clear(key)

    def put_in_place(self, key: TopicPartition) -> None:
        """The copy is one of the directory's logs from now on, but not yet on disk: see
        ``settle``."""
        self._logs[key] = self.open.pop(key)
        self._checkpoints.changed(key)

    async def settle(self, log: PartitionLog) -> None:
        """Let a copy that is in place be the log on disk as well, for good. Everything of it that
        must not be lost is on disk already. Raises StorageError: it may be called again."""
        note = f"{log.directory}/{COPY_FILE}"
        try:
            if self._disk.exists(note):
                self._disk.rename(note, f"{log.directory}/{COPIED_FILE}")
            await self._disk.sync([log.directory])
        except OSError as error:
            raise self._refusal(f"{log.directory} cannot take its place", error) from error

    def is_copied(self, key: TopicPartition) -> bool:
        """Whether the log of that name was copied here, so that another of the name is older."""
        return self._disk.exists(f"{self._path}/{key}/{COPIED_FILE}")

    async def forget_copied(self, key: TopicPartition) -> None:
        """No older log of the name can come back any more. Durable when it returns. Raises
        StorageError."""
        directory = f"{self._path}/{key}"
        try:
            if self.is_copied(key):
                self._disk.remove(f"{directory}/{COPIED_FILE}")
                await self._disk.sync([directory])
        except OSError as error:
            raise self._refusal(f"{directory} cannot be changed", error) from error

    def close(self) -> None:
        for copy in self.open.values():
            copy.close()
