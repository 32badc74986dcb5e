"""Replicas in log directories that could not be opened at the start (KIP-858).

Such a replica has no log here, and gets no new one: the directory may come back, and then it would
have two. The controller has taken it out of the ISR, or knows that it is the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.membership.directories import Unopened
from broker.replication.assignments import DirectoryAssignments, id_of
from broker.replication.relaxed_flush import RelaxedFlush
from metadata.directories import LOST, is_reserved
from stele.ids import PartitionId, TopicPartition
from storage.directory import LogDirectory


class UnopenedReplica(NamedTuple):
    """A replica that cannot be used. ``path``: its directory; None: it is not known which one."""

    name: TopicPartition
    path: str | None


class UnopenedReplicas:
    """The unopened replicas of this broker."""

    def __init__(
        self,
        directories: Sequence[Unopened],
        opened: Mapping[LogDirectory, RelaxedFlush],
        assignments: DirectoryAssignments,
    ) -> None:
        self.paths = tuple(each.path for each in directories)
        """The directories that are not open."""
        self._directories = tuple(directories)
        self._opened = opened
        self._assignments = assignments
        self._replicas: dict[PartitionId, TopicPartition] = {}

    def __len__(self) -> int:
        return len(self._replicas)

    def takes(self, partition: PartitionId, topic: str) -> bool:
        """Whether the replica is in such a directory by the metadata. Then it stands here."""
        self._replicas.pop(partition, None)
        if not self._directories:
            return False
        name = TopicPartition(topic, partition.partition)
        directory_id = self._assignments.of(partition)
        if directory_id == LOST:
            is_unopened = not any(
                each.holds(name) and each.topic_id(name) == partition.topic_id
                for each in self._opened
            )
        else:
            is_unopened = not is_reserved(directory_id) and all(
                id_of(each) != directory_id for each in self._opened
            )
        if is_unopened:
            self._replicas[partition] = name
        return is_unopened

    def __contains__(self, partition: object) -> bool:
        return partition in self._replicas

    def forget(self, partition: PartitionId) -> None:
        """The replica is no longer this broker's."""
        self._replicas.pop(partition, None)

    def __iter__(self) -> Iterator[UnopenedReplica]:
        """Each with the path of its directory."""
        by_id = {each.directory_id: each.path for each in self._directories}
        unknown = [each.path for each in self._directories if each.directory_id is None]
        for partition, name in self._replicas.items():
            path = by_id.get(self._assignments.of(partition))
            if path is None and len(unknown) == 1:
                path = unknown[0]
            yield UnopenedReplica(name, path)
