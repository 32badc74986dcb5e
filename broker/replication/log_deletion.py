"""Deletes the logs of replicas that are gone. What cannot be deleted at once is tried again."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker.replication.relaxed_flush import RelaxedFlush
from stele.ids import TopicPartition
from storage.directory import LogDirectory
from storage.errors import StorageError

logger = logging.getLogger(__name__)


class LogDeletion:
    """The deletion of logs in all directories of this broker."""

    def __init__(self, directories: Mapping[LogDirectory, RelaxedFlush]) -> None:
        self._directories = directories
        # Logs that could not be deleted, with the topic ids that they are of.
        self._undeleted: dict[tuple[LogDirectory, TopicPartition], bytes | None] = {}

    def delete(self, directory: LogDirectory, key: TopicPartition) -> None:
        """Delete a log now, or as soon as that is possible."""
        try:
            directory.delete(key.topic, key.partition)
            self._directories[directory].discard(key.topic, key.partition)
        except StorageError as error:
            logger.error("%s: %s", key, error)
            if directory.holds(key):
                self._undeleted[directory, key] = directory.topic_id(key)

    def retry(self) -> None:
        """Delete what could not be deleted before, unless a later topic has a log of the name."""
        undeleted, self._undeleted = self._undeleted, {}
        for (directory, key), topic_id in undeleted.items():
            if directory.offline is not None or not directory.holds(key):
                continue
            if directory.topic_id(key) == topic_id:
                self.delete(directory, key)
