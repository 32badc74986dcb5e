"""The replicas that acknowledge records before they are on disk (``flush.messages`` above 1).

After an unclean end of the process they may lack acknowledged records, and must leave ISR and ELR
before any other replica counts on them. This must be known before the metadata are, so it is in a
file.
"""

from __future__ import annotations

from collections.abc import Iterable

from stele.ids import PartitionId, TopicPartition
from storage.checkpoints import encode_offsets, read_offsets
from storage.directory import LogDirectory
from storage.errors import StorageError
from world.disk import Disk

FILE = "relaxed-flush-checkpoint"


class RelaxedFlush:
    """The relaxed replicas of one directory."""

    def __init__(self, disk: Disk, directory: LogDirectory) -> None:
        self._disk = disk
        self._path = f"{directory.path}/{FILE}"
        # What the file holds: every relaxed replica, before it acknowledges the first record.
        self._relaxed = set(read_offsets(disk, self._path))
        self._gone: set[TopicPartition] = set()  # in the file, for nothing, until it is written
        self._lossy: list[PartitionId] = []
        if not directory.clean_shutdown:
            for key in sorted(self._relaxed):
                log = directory.logs.get(key)
                if log is not None and log.topic_id is not None:
                    self._lossy.append(PartitionId(log.topic_id, key.partition))

    @property
    def lossy(self) -> list[PartitionId]:
        """Replicas that may have lost acknowledged records."""
        return list(self._lossy)

    def reported(self) -> None:
        """The controller knows: the registration that named them is committed."""
        self._lossy.clear()

    def add(self, topic: str, partition: int) -> None:
        """A replica is relaxed from now on. Durable before it returns. Raises StorageError."""
        self.add_all([TopicPartition(topic, partition)])

    def add_all(self, keys: Iterable[TopicPartition]) -> None:
        """As ``add``, of many at the cost of one: two waits for the device, if any is new."""
        added = set(keys)
        self._gone -= added
        if not added <= self._relaxed:
            self._write(self._relaxed | added)

    def discard(self, topic: str, partition: int) -> None:
        """A replica is gone, or strict with all that it holds on disk. The file says so from
        ``settle`` on: until then a crash has it reported for nothing, which does no harm.

        One that becomes strict while it works is not: what it wrote before may still be lost.
        """
        key = TopicPartition(topic, partition)
        if key in self._relaxed:
            self._gone.add(key)

    def settle(self) -> None:
        """Take what was discarded out of the file. Raises StorageError: it may be called again."""
        if self._gone:
            self._write(self._relaxed - self._gone)
            self._gone.clear()

    def _write(self, relaxed: set[TopicPartition]) -> None:
        try:
            self._disk.replace_file_now(self._path, encode_offsets(dict.fromkeys(relaxed, 0)))
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}") from error
        self._relaxed = relaxed
