"""Brings the replicas in line with the metadata: lead, follow, create, delete, configure."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker.partition.effects import EMPTY_LOG, BrokerStatus, Followed
from broker.partition.machine import PartitionMachine
from broker.replication.assignments import DirectoryAssignments, id_of
from broker.replication.events import ReplicaEvents
from broker.replication.log_config import log_config
from broker.replication.log_deletion import LogDeletion
from broker.replication.moves import DirectoryMoves
from broker.replication.relaxed_flush import RelaxedFlush
from broker.replication.replica import Replica, ReplicaState, position_of
from broker.replication.replicas import Replicas
from broker.replication.unopened import UnopenedReplicas
from metadata.configs import ConfigResource
from metadata.delta import MetadataDelta
from metadata.directories import is_reserved
from metadata.effective import effective_topic_config, min_insync_replicas
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, PartitionState
from metadata.topic_config import TopicConfig
from metadata.topics import PartitionDelta
from runtime.config.node import NodeConfig
from stele.ids import PartitionId, TopicPartition
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.errors import StorageError
from storage.log import PartitionLog

logger = logging.getLogger(__name__)


LOGS_AT_ONCE: Final = 25
"""New logs that are made in one turn of the event loop. A request may make thousands of partitions,
and each takes some 10 calls of the file system. Without heartbeats meanwhile the controller would
fence the broker."""


REPLICAS_AT_ONCE: Final = 100
"""Replicas that are changed in one turn of the event loop, some 10 ms. A decision may be about all
replicas of a broker."""


class _Topic(NamedTuple):
    """A topic's configuration, and its lists of throttled replicas as sets."""

    config: TopicConfig
    throttled_as_leaders: frozenset[str]
    throttled_as_followers: frozenset[str]


class _Turn:
    """Counts the replicas that were changed in this turn of the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def is_full(self) -> bool:
        """Count one more. If the turn is full, the next one begins."""
        self._count = (self._count + 1) % self._most
        return self._count == 0

    def each(
        self, replicas: Iterable[Replica], change: Callable[[Replica], None]
    ) -> Iterator[None]:
        """Change these replicas, in as many turns as that takes."""
        for replica in replicas:
            change(replica)
            if self.is_full():
                yield


class MetadataApplier:
    """Applies one delta after the other. A failing log stops its replica only."""

    def __init__(
        self,
        replicas: Replicas,
        config: NodeConfig,
        directories: Mapping[LogDirectory, RelaxedFlush],
        unopened: UnopenedReplicas,
        deletion: LogDeletion,
        moves: DirectoryMoves,
        assignments: DirectoryAssignments,
        events: ReplicaEvents,
    ) -> None:
        self._replicas = replicas
        self._config = config
        self._directories = directories
        self.unopened = unopened
        """Replicas that are in directories that are not open. They have no log here."""
        self._deletion = deletion
        self._moves = moves
        self._assignments = assignments
        self._events = events
        self._is_first = True
        # Of the topics looked at so far in the present image.
        self._topics: dict[str, _Topic] = {}
        # Replicas whose log could not be made, e.g. for want of space: tried again.
        self._unmade: dict[PartitionId, PartitionDelta] = {}
        # New replicas whose logs are made in later turns, in order. Requests for them are refused
        # as before the metadata came.
        self._awaiting: dict[PartitionId, PartitionDelta] = {}
        self._logs_left = 0  # that may be made in this turn
        self._next_turn: asyncio.Handle | None = None
        self._is_applying = False

    def apply(self, delta: MetadataDelta) -> Iterator[None]:
        """Apply the image after the delta, in turns of the event loop: each step is one.

        Between two steps some replicas still have the image before, as if this broker had not heard
        of the decision yet. A replica's partition and its min.insync.replicas change in one step.
        The next delta is applied only after the last step.
        """
        self._is_applying = True
        try:
            yield from self._apply(delta)
        finally:
            self._is_applying = False
        self._schedule_awaiting()

    def _apply(self, delta: MetadataDelta) -> Iterator[None]:
        turn = _Turn(REPLICAS_AT_ONCE)
        self._topics.clear()
        self._logs_left = LOGS_AT_ONCE
        is_first, self._is_first = self._is_first, False
        if is_first:
            for relaxed in self._directories.values():
                relaxed.reported()
            self._delete_strays(self._replicas.metadata.image)
        self._announce_relaxed(delta)
        for topic in delta.deleted_topics:
            for number in range(len(topic.partitions)):
                partition = PartitionId(topic.topic_id, number)
                if self._remove(partition) and turn.is_full():
                    yield
                self._moves.forget_wish(partition)
        # Partitions come first: nothing else of this image is acted on with the leader or the ISR
        # of an earlier one.
        for change in delta.changed_partitions:
            if self._apply_partition(change) and turn.is_full():
                yield
                self._logs_left = LOGS_AT_ONCE
        yield from turn.each(self._to_configure(delta.changed_configs), self._configure)
        for status in self._changed_statuses(delta):
            yield from turn.each(list(self._replicas), partial(self._apply_status, status))
        yield from turn.each(self._assignments.to_look_at_again(), self._assignments.look)
        if is_first:
            self._moves.resume()
        self._settle_relaxed()

    @property
    def unmade(self) -> int:
        """The number of replicas that have no log for now."""
        return len(self._unmade) + len(self._awaiting) + len(self.unopened)

    def stop(self) -> None:
        """Make no more logs."""
        self._awaiting.clear()
        if self._next_turn is not None:
            self._next_turn.cancel()

    def retry_failed(self) -> None:
        """Delete the logs that could not be deleted before, and make those not made."""
        if self._is_applying:
            return  # what is not made may be about to change
        self._deletion.retry()
        unmade, self._unmade = self._unmade, {}
        for change in unmade.values():
            self._apply_partition(change)
        self._settle_relaxed()

    # ----------------------------------------------------------------------- relaxed flush

    def _announce_relaxed(self, delta: MetadataDelta) -> None:
        """Write down at once which replicas this change makes relaxed. Where their logs will be is
        not known yet: a name beside which no log stands says nothing."""
        relaxed: dict[str, bool] = {}  # by topic
        keys: list[TopicPartition] = []
        for change in delta.changed_partitions:
            if self._replicas.broker_id in change.after.replicas:
                if change.topic not in relaxed:
                    config = self._log_config(self._topic_config(change.topic))
                    relaxed[change.topic] = not config.strict_flush
                if relaxed[change.topic]:
                    keys.append(TopicPartition(change.topic, change.partition))
        keys.extend(
            TopicPartition(replica.topic, replica.id.partition)
            for replica in self._to_configure(delta.changed_configs)
            if not self._log_config(self._topic_config(replica.topic)).strict_flush
        )
        for directory, noted in self._directories.items():
            try:
                if directory.offline is None:
                    noted.add_all(keys)
            except StorageError as error:
                logger.error("%s", error)  # each replica meets it again

    def _settle_relaxed(self) -> None:
        for directory, noted in self._directories.items():
            try:
                if directory.offline is None:
                    noted.settle()
            except StorageError as error:
                logger.error("%s", error)  # the next change tries again

    # -------------------------------------------------------------------------- partitions

    def _apply_partition(self, change: PartitionDelta) -> bool:
        """Returns False if there was nothing to do: the partition has no replica here."""
        partition = PartitionId(change.topic_id, change.partition)
        if self._replicas.broker_id not in change.after.replicas:
            return self._remove(partition)
        self._apply_replica(partition, change)
        return True

    def _apply_replica(self, partition: PartitionId, change: PartitionDelta) -> None:
        self._unmade.pop(partition, None)
        replica = self._replicas.by_id.get(partition)
        if replica is None and (
            self.unopened.takes(partition, change.topic)
            or self._waits_for_its_turn(partition, change)
        ):
            return
        rebuilt = False
        try:
            if replica is None:
                replica = self._create(partition, change.topic)
            if replica.state is ReplicaState.CORRUPT and self._may_rebuild(replica, change.after):
                self._rebuild(replica)
                rebuilt = True
        except StorageError as error:
            logger.error("%s-%d: %s", change.topic, change.partition, error)
            self._unmade[partition] = change
            if replica is None:
                return  # one that is there hears of its leader, though it has no log for now
        self._assignments.look(replica)
        if (
            replica.state is not ReplicaState.ONLINE
            and change.after.leader == replica.machine.broker_id
        ):
            return  # nothing can be led without a log
        effects = replica.machine.updated(
            change.after,
            min_insync_replicas(self._replicas.metadata.image, replica.topic),
            replica.position,
            self._replicas.now_ms(),
        )
        if rebuilt and not effects:  # it followed already, but had no log to fetch into
            effects = [Followed(change.after.leader, change.after.leader_epoch)]
        self._replicas.unsettled[partition] = None
        self._replicas.carry_out(replica, effects)
        replica.stir_followers()
        if not replica.machine.is_leader:
            replica.wake_consumers()  # a follower outside of the ISR sends them away
        self._events.changed(replica)

    def _waits_for_its_turn(self, partition: PartitionId, change: PartitionDelta) -> bool:
        """Whether a new log has to wait, because so many were made in this turn. The newest change
        is the one that counts then."""
        key = TopicPartition(change.topic, change.partition)
        self._awaiting.pop(partition, None)
        if any(directory.holds(key) for directory in self._directories):
            return False
        if self._logs_left > 0:
            self._logs_left -= 1
            return False
        self._awaiting[partition] = change
        self._schedule_awaiting()
        return True

    def _schedule_awaiting(self) -> None:
        if self._awaiting and self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._make_awaiting)

    def _make_awaiting(self) -> None:
        self._next_turn = None
        if self._is_applying:
            return  # a newer state of the partition may be about to come
        self._logs_left = LOGS_AT_ONCE
        for partition in list(itertools.islice(self._awaiting, LOGS_AT_ONCE)):
            change = self._awaiting.pop(partition)
            try:
                self._apply_partition(change)
            except Exception:
                logger.exception("%s-%d cannot be made", change.topic, change.partition)
                self._unmade[partition] = change
        self._settle_relaxed()
        self._schedule_awaiting()

    def _create(self, partition: PartitionId, topic: str) -> Replica:
        """Over the log that is there, or an empty one. Raises StorageError."""
        config = self._topic_config(topic)
        directory, log = self._open_log(partition, topic, config)
        if self._log_config(config).strict_flush:
            self._directories[directory].discard(topic, partition.partition)
        else:
            self._directories[directory].add(topic, partition.partition)
        machine = PartitionMachine(
            self._replicas.broker_id,
            log=EMPTY_LOG if log is None else position_of(log),
            high_watermark=0 if log is None else log.recovered_high_watermark,
            lag_max_ms=self._config.replica_lag_time_max_ms,
        )
        traffic = self._replicas.traffic_of(topic)
        replica = Replica(partition, topic, config, machine, directory, log, traffic)
        self._throttle(replica)
        if log is not None:
            self._replicas.listen(replica, log)
        self._replicas.by_id[partition] = replica
        self._moves.forget_wish(partition)
        return replica

    def _open_log(
        self, partition: PartitionId, topic: str, config: TopicConfig
    ) -> tuple[LogDirectory, PartitionLog | None]:
        """None: the log is corrupt."""
        key = TopicPartition(topic, partition.partition)
        self._delete_older(key, partition.topic_id)
        for directory in self._directories:
            if key not in directory.corrupt and key not in directory.logs:
                continue
            topic_id = directory.topic_id(key)
            if topic_id not in (None, partition.topic_id):  # of a topic of that name deleted before
                if directory.offline is None:  # else the next start deletes it
                    directory.delete(*key)
                continue
            if topic_id is None:  # corrupt: it may be of a topic of that name deleted before
                directory.name_corrupt(*key, partition.topic_id)
                self._events.corrupt_named()
            log = directory.logs.get(key)
            if log is not None:
                log.configure(self._log_config(config))
            return directory, log
        online = [directory for directory in self._directories if directory.offline is None]
        if not online:
            raise StorageError("every log directory is offline")
        begun = [directory for directory in online if key in directory.half_made]
        wish = self._moves.wish_of(partition) or self._assigned(partition, online)
        if wish is not None and not begun:
            online = [wish]
        directory = min(begun or online, key=lambda each: len(each.logs))
        log = directory.create(topic, key.partition, partition.topic_id, self._log_config(config))
        return directory, log

    def _assigned(
        self, partition: PartitionId, among: Sequence[LogDirectory]
    ) -> LogDirectory | None:
        """The directory in which the metadata have the replica, if it is one of these."""
        directory_id = self._assignments.of(partition)
        if is_reserved(directory_id):
            return None
        return next((each for each in among if id_of(each) == directory_id), None)

    def _delete_older(self, key: TopicPartition, topic_id: bytes) -> None:
        """Of several logs of a name, the one in the directory that the controller knows is the
        newest: it is told before anything is acknowledged in another one. If it knows none of them,
        that which was copied from another directory is the newest: a crash came before the other
        was deleted. Raises StorageError: then none is used yet."""
        holders = [directory for directory in self._directories if directory.holds(key)]
        same = [directory for directory in holders if directory.topic_id(key) == topic_id]
        copied = [directory for directory in same if directory.copies.is_copied(key)]
        newest = self._assigned(PartitionId(topic_id, key.partition), same)
        if newest is None and copied:
            newest = copied[0]
        for directory in holders:
            if newest is not None and directory is not newest:
                logger.warning(
                    "%s/%s is older than that in %s: deleting it", directory.path, key, newest.path
                )
                directory.delete(*key)
                self._directories[directory].discard(*key)

    def configure(self, config: NodeConfig) -> None:
        """Go by these settings of the node. The next delta brings them to the logs: it has changed
        them, or it is the first."""
        self._config = config

    def _log_config(self, config: TopicConfig) -> LogConfig:
        return log_config(config, self._config)

    # ------------------------------------------------------------------------- corruption

    def _may_rebuild(self, replica: Replica, state: PartitionState) -> bool:
        """Whether a corrupt log may be replaced: another broker leads, this replica is in no ISR or
        ELR, and no late fetch of the old log can reach the leader and pass for one of the new."""
        broker_id = self._replicas.broker_id
        return (
            state.leader not in (NO_LEADER, broker_id)
            and broker_id not in (*state.isr, *state.elr)
            and state.leader_epoch > replica.corrupt_in_epoch
        )

    def _rebuild(self, replica: Replica) -> None:
        """Begin with an empty log; the leader has everything. Raises StorageError."""
        if self._moves.is_settling(replica.id):
            raise StorageError("an older log in another directory is not deleted yet")
        logger.warning("%r was corrupt: fetching it anew", replica)
        log = replica.directory.discard_corrupt(
            replica.topic,
            replica.id.partition,
            replica.id.topic_id,
            self._log_config(replica.config),
        )
        replica.bring_online(log)
        self._replicas.listen(replica, log)

    # --------------------------------------------------------------------------- removing

    def _remove(self, partition: PartitionId) -> bool:
        """Returns False if there is no replica."""
        self._awaiting.pop(partition, None)
        self.unopened.forget(partition)
        unmade = self._unmade.pop(partition, None)
        if unmade is not None:
            self._delete_half_made(TopicPartition(unmade.topic, partition.partition))
        replica = self._replicas.by_id.pop(partition, None)
        if replica is None:
            return False
        self._events.take_down(replica, ReplicaState.REMOVED)
        logger.info("%r is not assigned to this broker any more: deleting it", replica)
        self._deletion.delete(replica.directory, TopicPartition(replica.topic, partition.partition))
        return True

    def _delete_half_made(self, key: TopicPartition) -> None:
        """Drop a log that could not be made and is not wanted any more."""
        for directory in self._directories:
            if key in directory.half_made:
                self._deletion.delete(directory, key)

    def _delete_strays(self, image: MetadataImage) -> None:
        """Delete logs of topics that were deleted, or replicas that moved away, while this broker
        was down."""
        for directory in self._directories:
            known = {key: log.topic_id for key, log in directory.logs.items()}
            known.update(directory.corrupt_topic_ids)
            known.update(directory.half_made)
            for key, topic_id in sorted(known.items()):
                topic = image.topic(key.topic)
                state = None
                if topic is not None and topic_id in (None, topic.topic_id):
                    state = image.partition(topic.topic_id, key.partition)
                if state is None or self._replicas.broker_id not in state.replicas:
                    logger.warning("%s is not assigned to this broker any more: deleting it", key)
                    self._deletion.delete(directory, key)

    # ----------------------------------------------------------------- brokers and configs

    def _changed_statuses(self, delta: MetadataDelta) -> list[tuple[int, BrokerStatus]]:
        changed = [change.broker_id for change in delta.changed_brokers]
        return [(broker_id, self._replicas.status(broker_id)) for broker_id in changed]

    def _apply_status(self, changed: tuple[int, BrokerStatus], replica: Replica) -> None:
        effects = replica.machine.broker_changed(*changed, self._replicas.now_ms())
        self._replicas.carry_out(replica, effects)

    def _to_configure(self, changed: Sequence[ConfigResource]) -> list[Replica]:
        """The replicas that a change of these is about."""
        if not changed:
            return []
        whole = any(ConfigResource.topic(resource.name) != resource for resource in changed)
        topics = {resource.name for resource in changed}
        return [replica for replica in self._replicas if whole or replica.topic in topics]

    def _throttle(self, replica: Replica) -> None:
        topic = self._topic(replica.topic)
        names = {"*", f"{replica.id.partition}:{self._replicas.broker_id}"}
        replica.throttled_as_leader = not names.isdisjoint(topic.throttled_as_leaders)
        replica.throttled_as_follower = not names.isdisjoint(topic.throttled_as_followers)

    def _configure(self, replica: Replica) -> None:
        self._throttle(replica)
        replica.stir_followers(wakes=True)  # it may have waited for quota
        self._events.changed(replica)
        config = self._topic_config(replica.topic)
        changed = self._log_config(config)
        try:
            if not changed.strict_flush:
                relaxed = self._directories[replica.directory]
                relaxed.add(replica.topic, replica.id.partition)
        except StorageError as error:
            logger.error("%r keeps its configuration: %s", replica, error)
        else:
            replica.config = config
            if replica.state is ReplicaState.ONLINE:
                replica.log.configure(changed)
        # In any case: by this the controller decides who is eligible.
        needed = min_insync_replicas(self._replicas.metadata.image, replica.topic)
        effects = replica.machine.configured(needed, self._replicas.now_ms())
        self._replicas.carry_out(replica, effects)

    def _topic_config(self, topic: str) -> TopicConfig:
        return self._topic(topic).config

    def _topic(self, name: str) -> _Topic:
        """Worked out once for all partitions of a topic: its lists may be as long as it is. And
        once for all topics that configure nothing themselves, under the name that none has."""
        if not self._replicas.metadata.image.config(ConfigResource.topic(name)):
            name = ""
        topic = self._topics.get(name)
        if topic is None:
            config = effective_topic_config(
                self._replicas.metadata.image,
                name,
                static=self._config.raw,
                broker_id=self._replicas.broker_id,
            )
            topic = self._topics[name] = _Topic(
                config,
                frozenset(config.leader_replication_throttled_replicas),
                frozenset(config.follower_replication_throttled_replicas),
            )
        return topic
