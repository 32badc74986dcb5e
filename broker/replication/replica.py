"""One replica on this broker: its machine, its log, and the requests that wait for it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from broker.partition.effects import LogPosition
from broker.partition.machine import PartitionMachine
from broker.partition.progress import Attendance
from broker.replication.traffic import TopicTraffic
from broker.replication.types import LeaderHint, TracedBatch
from metadata.topic_config import TopicConfig
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.control_records import EndMarker
from stele.world import Buffer
from storage.directory import LogDirectory
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.producer_handover import HandedProducers


class ReplicaState(enum.Enum):
    """Whether a replica's log can be worked with, and if not, why."""

    ONLINE = "online"
    CORRUPT = "corrupt"  # to be rebuilt once the controller has taken it out of ISR and ELR
    OFFLINE = "offline"  # its directory failed, or the log holds something unexpected
    REMOVED = "removed"  # not this broker's any more; it does not come back


class ProduceToken(Protocol):
    """One partition of a produce request that waits; the token of the machine's effects."""

    def acknowledge(self) -> None: ...

    def refuse(self, error: ErrorCode) -> None: ...

    def __hash__(self) -> int: ...


Wake = Callable[[], None]

OnMarker = Callable[[int, int, EndMarker], None]
"""Told the offset, the producer id and the marker when a transaction's end was appended."""


class Watcher(Protocol):
    """A follower's fetch session that covers a partition."""

    replica_id: int
    attendance: Attendance

    def stir(self, partition: PartitionId, *, wakes: bool) -> None:
        """Something changed: look at the partition again, with ``wakes`` before the next fetch."""
        ...

    def advance(self, partition: PartitionId) -> None:
        """More is committed: the follower is to hear of it with the next records, or soon."""
        ...


ReportCorrupt = Callable[["Replica", PartitionLog, CorruptLogError], None]
"""Told of a log that was found to hold something else than was written, and of the replica that
used it when it was asked for: it need not any more."""


def position_of(log: PartitionLog) -> LogPosition:
    """Where a log stands now, as its machine is told."""
    durability = log.durability
    return LogPosition(
        log.start_offset,
        log.end_offset,
        durability.durable_offset,
        durability.generation,
        log.transactions.first_open_offset,
    )


class Replica:
    """The driver's handle to one partition. The machine decides; this only holds together."""

    # There exactly while the state is ONLINE: at any other time asking for it is a mistake.
    log: PartitionLog

    __slots__ = (
        "_bounds_before_move",
        "config",
        "consumers",
        "corrupt_in_epoch",
        "directory",
        "followers",
        "id",
        "log",
        "machine",
        "on_marker",
        "settled_directory",
        "state",
        "tenure",
        "throttled_as_follower",
        "throttled_as_leader",
        "topic",
        "traced",
        "traffic",
        "watchers",
    )

    def __init__(
        self,
        partition: PartitionId,
        topic: str,
        config: TopicConfig,
        machine: PartitionMachine,
        directory: LogDirectory,
        log: PartitionLog | None,
        traffic: TopicTraffic,
    ) -> None:
        """Without a log it is corrupt or offline. ``traffic`` is shared by replicas of a topic."""
        self.id = partition
        self.topic = topic
        self.traffic = traffic
        self.config = config
        # Whether replication is throttled here, by the topic's lists.
        self.throttled_as_leader = False
        self.throttled_as_follower = False
        # The newest batch of a traced request. Answers to followers that lack it carry its context.
        self.traced: TracedBatch | None = None
        self.machine = machine
        self.directory = directory
        # The directory whose log is marked on disk as the replica's. It differs from ``directory``
        # while a move has put a copy to use that does not count yet. The controller must be told
        # this one: it counts a replica as lost together with the directory it knows.
        self.settled_directory = directory
        # The start and the dropped end that a restart finds until the copy of a move counts.
        self._bounds_before_move = (0, 0)
        self.state = ReplicaState.CORRUPT if log is None else ReplicaState.ONLINE
        # Another object whenever the replica begins anew with an empty log. A move to another
        # directory changes the log and keeps this object: the records are the same.
        self.tenure = object()
        if log is not None:
            self.log = log
        # The leader epoch in which the log was found corrupt; -1: before this process fetched.
        self.corrupt_in_epoch = -1
        # The sessions of followers that have looked at this replica and cover it still.
        self.watchers: dict[Watcher, None] = {}
        # Parked fetches, in order of arrival: of followers without a session, which wait for the
        # log's end, and of consumers, which wait for the high watermark. Each stands here under
        # all its partitions.
        self.followers: dict[object, Wake] = {}
        self.consumers: dict[object, Wake] = {}
        # The coordinator that this partition hosts, if there is one.
        self.on_marker: OnMarker | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.id.partition}"

    def uses(self, log: PartitionLog) -> bool:
        """Whether this is the log that the replica works with. Call it after any await: False if
        the replica was removed, moved or restarted meanwhile."""
        return self.state is ReplicaState.ONLINE and self.log is log

    def has_tenure(self, tenure: object) -> bool:
        """Whether its log is the one of that tenure, in whichever directory it is now."""
        return self.state is ReplicaState.ONLINE and self.tenure is tenure

    @property
    def complete_members(self) -> frozenset[int]:
        """The brokers that have all that is committed, by the newest metadata."""
        state = self.machine.state
        return frozenset((*state.isr, *state.elr))

    @property
    def refusal(self) -> ErrorCode:
        """Why nobody is given anything of the log; NONE while ONLINE."""
        match self.state:
            case ReplicaState.ONLINE:
                return ErrorCode.NONE
            case ReplicaState.REMOVED:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            case ReplicaState.CORRUPT | ReplicaState.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR

    @property
    def durable_start_offset(self) -> int:
        """The least start offset that the log may have after a restart."""
        start = self.directory.durable_start_offset(self.log)
        return min(start, self._bounds_before_move[0]) if self.log.durability.is_held else start

    @property
    def durable_dropped_end(self) -> int:
        """The least ``dropped_end`` that the log may know after a restart."""
        end = self.directory.durable_dropped_end(self.log)
        return min(end, self._bounds_before_move[1]) if self.log.durability.is_held else end

    def bring_online(self, log: PartitionLog) -> None:
        """Begin with another, empty log."""
        self.log = log
        self.tenure = object()
        self.state = ReplicaState.ONLINE
        self.machine.truncated(self.position)

    def move_to(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Go on with a whole copy of the log in another directory. A restart would still find the
        old log, until ``settle``."""
        self._bounds_before_move = self.durable_start_offset, self.durable_dropped_end
        self.directory, self.log = directory, log

    def settle(self) -> None:
        """The log in ``directory`` is marked on disk as the replica's."""
        self.settled_directory = self.directory

    @property
    def is_settled(self) -> bool:
        """Whether the log that is used now is marked on disk as the replica's."""
        return self.settled_directory is self.directory

    def take_down(self, state: ReplicaState) -> None:
        """The log cannot be worked with any more."""
        if self.state is ReplicaState.ONLINE:
            del self.log
        self.state = state
        if state is ReplicaState.CORRUPT:
            self.corrupt_in_epoch = self.machine.leader_epoch

    @property
    def position(self) -> LogPosition:
        is_online = self.state is ReplicaState.ONLINE
        return position_of(self.log) if is_online else self.machine.log

    # ------------------------------------- changes of the log, which the machine hears one by one

    def copy(self, records: Buffer, leader_high_watermark: int, leader_start_offset: int) -> None:
        """Append what the leader sent, and begin where its log does. Raises as
        ``PartitionLog.append_as_follower``; the batches before the faulty one are there then."""
        log = self.log
        try:
            if len(records):
                log.append_as_follower(records)
            log.advance_start_offset(min(leader_start_offset, log.end_offset))
        finally:
            if self.machine.copied(self.position, leader_high_watermark):
                self.wake_consumers()

    def truncate_to(self, offset: int) -> None:
        """Raises as ``PartitionLog.truncate_to``."""
        self.log.truncate_to(offset)
        self._cut()

    def reset_to(self, offset: int, producers: HandedProducers | None = None) -> None:
        """Raises as ``PartitionLog.reset_to``."""
        self.log.reset_to(offset, producers)
        self._cut()

    def _cut(self) -> None:
        """Consumers may wait here for what is gone now, and count bytes that are."""
        self.machine.truncated(self.position)
        self.wake_consumers()

    def begin_at(self, offset: int) -> None:
        """Retention, or a request, deletes the records below ``offset``. Never moves back. Raises
        StorageError: nothing has changed."""
        log = self.log
        if offset > log.start_offset:
            log.advance_start_offset(offset)
            self.machine.started_at(self.position)
            self.stir_followers()

    @property
    def leader_hint(self) -> LeaderHint:
        return LeaderHint(self.machine.leader, self.machine.leader_epoch)

    def unwatch(self, watcher: Watcher) -> None:
        """The session covers the partition no longer."""
        if watcher in self.watchers:
            del self.watchers[watcher]
            self.machine.left(watcher.replica_id, watcher.attendance)

    def stir_followers(self, *, wakes: bool = False) -> None:
        """There is something that followers hear of with the next answer, or at once."""
        for watcher in self.watchers:
            watcher.stir(self.id, wakes=wakes)

    def tell_followers_of_advance(self) -> None:
        for watcher in self.watchers:
            watcher.advance(self.id)

    def wake_followers(self) -> None:
        for watcher in self.watchers:
            watcher.stir(self.id, wakes=True)
        for wake in list(self.followers.values()):
            wake()

    def wake_consumers(self) -> None:
        for wake in list(self.consumers.values()):
            wake()

    def wake_all(self) -> None:
        """Something else changed: all waiting fetches look again."""
        self.wake_followers()
        self.wake_consumers()
