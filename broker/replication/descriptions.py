"""Descriptions of this broker's replicas for administrators: directories, sizes, producers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.replication.moves import DirectoryMoves
from broker.replication.replica import Replica, ReplicaState
from broker.replication.replicas import Replicas
from broker.replication.unopened import UnopenedReplicas
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.directory import LogDirectory
from storage.producer_state import ProducerEntry
from world.disk import Disk

TURN_REPLICAS = 200
"""Replicas described in one turn of the event loop: a broker may hold tens of thousands."""


class LedProducer(NamedTuple):
    """A producer of a partition that is led here."""

    entry: ProducerEntry | None  # None: it is not known
    high_watermark: int


@dataclass(slots=True)
class ReplicaSize:
    """One replica's log."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int  # how far its end is below the high watermark, or that of the replica's log
    is_future: bool = False  # a copy, to which the replica is moved


@dataclass(slots=True)
class DirectoryDescription:
    """One log directory. What is not known is -1."""

    path: str
    error: ErrorCode = ErrorCode.NONE
    total_bytes: int = -1  # of its file system
    usable_bytes: int = -1
    replicas: list[ReplicaSize] = field(default_factory=list)


class ReplicaDescriptions:
    """Reads only."""

    def __init__(
        self,
        replicas: Replicas,
        directories: Sequence[LogDirectory],
        moves: DirectoryMoves,
        unopened: UnopenedReplicas,
        disk: Disk,
        lease_valid: Callable[[], bool],
    ) -> None:
        """``lease_valid``: a leader without it may have a successor that knows more."""
        self._replicas = replicas
        self._directories = directories
        self._moves = moves
        self._unopened = unopened
        self._disk = disk
        self._lease_valid = lease_valid

    async def directories(
        self, wanted: Collection[tuple[str, int]] | None
    ) -> list[DirectoryDescription]:
        """Every directory, with its replicas of the partitions ``wanted`` (None: all).

        As in Kafka, what is being deleted is left out, also while its files are still there: a
        replica that is removed meanwhile, and a log that could not be deleted yet. A directory that
        is offline has its replicas, too. Their sizes are not known.
        """
        described = {each.path: self._directory(each) for each in self._directories}
        for path in self._unopened.paths:
            described[path] = DirectoryDescription(path, ErrorCode.KAFKA_STORAGE_ERROR)
        for number, replica in enumerate(list(self._replicas)):
            if number % TURN_REPLICAS == TURN_REPLICAS - 1:
                await asyncio.sleep(0)
            name = (replica.topic, replica.id.partition)
            if wanted is not None and name not in wanted:
                continue
            of_directory = described[replica.directory.path].replicas
            if replica.state is ReplicaState.ONLINE:
                lag = max(0, replica.machine.high_watermark - replica.log.end_offset)
                of_directory.append(ReplicaSize(*name, replica.log.size_bytes, lag))
            elif replica.directory.offline is not None:
                of_directory.append(ReplicaSize(*name, -1, -1))
        for unopened in self._unopened:
            if unopened.path is not None and (wanted is None or unopened.name in wanted):
                described[unopened.path].replicas.append(ReplicaSize(*unopened.name, -1, -1))
        for future in self._moves.future_replicas():
            if wanted is None or (future.topic, future.partition) in wanted:
                described[future.directory.path].replicas.append(
                    ReplicaSize(
                        future.topic,
                        future.partition,
                        future.size_bytes,
                        future.offset_lag,
                        is_future=True,
                    )
                )
        return list(described.values())

    def _directory(self, directory: LogDirectory) -> DirectoryDescription:
        path = directory.path
        if directory.offline is not None:
            return DirectoryDescription(path, ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            total_bytes, usable_bytes = self._disk.total_bytes(path), self._disk.free_bytes(path)
        except OSError:
            return DirectoryDescription(path, ErrorCode.KAFKA_STORAGE_ERROR)
        return DirectoryDescription(path, total_bytes=total_bytes, usable_bytes=usable_bytes)

    def producers(self, partition: PartitionId) -> list[ProducerEntry]:
        """The idempotent producers that a replica here remembers, leader or not, by id.

        Raises ApiError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, or the error for a partition
        that does not exist.
        """
        return sorted(self._online(partition).log.producers, key=lambda each: each.producer_id)

    def producer(
        self, partition: PartitionId, producer_id: int, current_leader_epoch: int
    ) -> LedProducer:
        """One producer, as the leader here knows it. Raises ApiError as ``producers``, for another
        leader epoch than the one that is asked for (-1: any), and NOT_LEADER_OR_FOLLOWER without a
        lease."""
        if not self._lease_valid():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica = self._online(partition)
        error = replica.machine.fence(current_leader_epoch)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        if self._replicas.deposed():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        known = replica.log.producers.get(producer_id)
        return LedProducer(known, replica.machine.high_watermark)

    def _online(self, partition: PartitionId) -> Replica:
        replica = self._replicas.by_id.get(partition)
        if replica is None:
            raise ApiError(self._replicas.refusal(partition))
        if replica.state is not ReplicaState.ONLINE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        return replica
