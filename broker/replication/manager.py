"""The replicas of one broker: the one append and the one fetch function of both planes.

This is where the parts are put together: the registry (``replicas``), produce, fetch and offset
requests, the metadata, the fetchers that follow other brokers, the ISR proposals, housekeeping.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final

from broker.membership.room import Rooms
from broker.partition.effects import Followed, IsrAnswer, Led, Proposed
from broker.replication.cleaner import Cleaner
from broker.replication.deadlines import DeadlineWheel
from broker.replication.deletion import DeleteRequests, Deletion, DeletionResult
from broker.replication.descriptions import (
    DirectoryDescription,
    LedProducer,
    ReplicaDescriptions,
)
from broker.replication.fetch import FetchRequests
from broker.replication.fetch_query import FetchQuery
from broker.replication.fetcher import Fetchers, LeaderConnection
from broker.replication.follower import Verdict
from broker.replication.follower_throttle import FollowerThrottle
from broker.replication.hosted import HostedPartition
from broker.replication.housekeeping import Housekeeping
from broker.replication.isr_proposer import AlterPartition, IsrProposer
from broker.replication.leader_throttle import LeaderThrottle
from broker.replication.markers import MarkerRequests
from broker.replication.metadata import MetadataApplier
from broker.replication.moves import DirectoryMoves
from broker.replication.offline import given_up
from broker.replication.offsets import OffsetRequests
from broker.replication.produce import ProduceRequests
from broker.replication.recompression import Recompression
from broker.replication.relaxed_flush import RelaxedFlush
from broker.replication.replica import Replica, ReplicaState
from broker.replication.replicas import Metadata, ReplicaCounters, Replicas
from broker.replication.traffic import TopicTraffic
from broker.replication.types import (
    Cancel,
    EpochQuery,
    FetchResult,
    LeaderHint,
    Marker,
    OffsetQuery,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
)
from broker.replication.verification import TransactionVerifier
from metadata.config_keys import FOLLOWER_THROTTLED_RATE, LEADER_THROTTLED_RATE, MOVES_RATE
from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta
from metadata.effective import throttled_rate, unclean_election_enabled
from metadata.image import MetadataImage
from metadata.internal_topics import INTERNAL_TOPICS
from metadata.partitions import NO_LEADER
from runtime.config.node import NodeConfig
from runtime.real.orderly_end import OrderlyEnd
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, TopicPartition, decode_uuid
from storage.directory import LogDirectory
from storage.errors import CorruptLogError, CutShortError, UnreadableLogError
from storage.log import PartitionLog
from storage.producer_state import ProducerEntry
from world.world import World

logger = logging.getLogger(__name__)

__all__ = ["ReplicaCounters", "ReplicaManager"]


_LAST: Final = object()


class ReplicaManager:
    """All replicas of this broker. Everything runs on the event loop; nothing blocks.

    Callbacks ``done`` are called exactly once, possibly before the call returns, never after
    the returned ``Cancel`` was called. Results stand in the order of the entries.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        world: World,
        directories: Sequence[LogDirectory],
        config: NodeConfig,
        metadata: Metadata,
        broker_epoch: Callable[[], int],
        alter_partition: AlterPartition,
        lease_valid: Callable[[], bool],
        directory_failed: Callable[[str], None],
        corruption_found: Callable[[], None] = lambda: None,
        rooms: Rooms | None = None,
        answer_share: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        """``directories`` are opened already (recovery done); they are closed by ``stop``.

        ``metadata`` holds the image to go by; before ``apply`` is called it has the new one.
        ``broker_epoch``: of the newest registration; goes into Fetch and AlterPartition.
        ``alter_partition`` reaches the active controller; it raises RpcError or ApiError.
        ``lease_valid`` says, reading the Clock anew, whether the last acknowledged heartbeat
        was sent less than the session timeout ago; a leader without acknowledges nothing.
        ``directory_failed`` is told the path of a directory that was taken offline.
        ``corruption_found`` is told that there are more ``corrupt_replicas`` than before: they
        have to be reported as those found at start, so that somebody else may lead.
        ``rooms`` is told of writes that are refused for want of space.
        ``answer_share``: how many bytes the next answer to a consumer may take.
        """
        self._broker_id = broker_id
        self._world = world
        self._config = config
        self._directories = tuple(directories)
        self._directory_failed = directory_failed
        self._corruption_found = corruption_found
        self._broker_epoch = broker_epoch
        self._lease_valid = lease_valid
        self._is_first = True  # nothing was applied yet
        self._stopped = False  # nothing is written to a log from then on
        self._replicas = Replicas(broker_id, world.clock, metadata)
        self._replicas.tells_high_watermarks_at_once = config.selects_replicas_by_rack
        self._on_leading: list[Callable[[PartitionId], None]] = []
        self._replicas.on_led = self._led
        self._replicas.on_followed = self._followed
        self._replicas.on_proposed = self._proposed
        self._deadlines = DeadlineWheel(world.clock)
        self._leader_throttle = LeaderThrottle(self._replicas, self._deadlines)
        self._produce = ProduceRequests(
            self._replicas, self._deadlines, lease_valid, Recompression(world.compute)
        )
        self._markers = MarkerRequests(self._produce, lease_valid)
        self._fetch = self._make_fetch(answer_share)
        self._offsets = OffsetRequests(self._replicas, lease_valid, self._found_corrupt)
        self._deletion = DeleteRequests(self._replicas, lease_valid)
        self._relaxed = {
            directory: RelaxedFlush(world.disk, directory) for directory in self._directories
        }
        self._applier = self._make_applier()
        self._follower_throttle = FollowerThrottle(
            world.clock, broker_id=broker_id, count_bytes=self._count_throttled
        )
        self._fetchers = self._make_fetchers()
        self._proposer = self._make_proposer(alter_partition)
        paths = [directory.path for directory in self._directories]
        self._rooms = rooms or Rooms(world.disk, world.clock, paths)
        self._housekeeping = Housekeeping(
            self._replicas, config, self._directories, self._applier, self._rooms
        )
        self.cleaner = Cleaner(self._replicas, world.disk, config)
        self.moves = self._applier.moves = self._make_moves()
        self._descriptions = ReplicaDescriptions(
            self._replicas, self._directories, self.moves, world.disk
        )

    def _make_fetch(self, answer_share: Callable[[], int]) -> FetchRequests:
        return FetchRequests(
            self._replicas,
            self._deadlines,
            self._found_corrupt,
            answer_share,
            self._leader_throttle,
            self._lease_valid,
        )

    def _make_applier(self) -> MetadataApplier:
        return MetadataApplier(
            self._replicas,
            self._config,
            self._relaxed,
            take_down=self._take_down,
            on_changed=lambda replica: self._fetchers.look_again(replica.id),
            corruption_found=self._corruption_found,
        )

    def _make_moves(self) -> DirectoryMoves:
        return DirectoryMoves(
            self._replicas,
            self._relaxed,
            self._rooms,
            self.cleaner,
            listen=self._applier.listen,
            delete_log=self._applier.delete_log,
            on_settled=lambda replica: self._fetchers.made_durable(replica.id),
            on_corrupt=self._found_corrupt,
        )

    def _make_fetchers(self) -> Fetchers:
        return Fetchers(
            throttle=self._follower_throttle,
            broker_id=self._broker_id,
            config=self._config,
            connect=self._connect,
            broker_epoch=self._broker_epoch,
            count=self._count_copied,
            on_corrupt=self._found_corrupt,
        )

    def _make_proposer(self, alter_partition: AlterPartition) -> IsrProposer:
        return IsrProposer(
            broker_id=self._broker_id,
            alter_partition=alter_partition,
            broker_epoch=self._broker_epoch,
            registered_epoch=lambda member: self._replicas.status(member).epoch,
            still_wanted=self._still_wanted,
            answered=self._isr_answered,
        )

    # ------------------------------------------------------------------------- life

    def start(self) -> None:
        """Begin housekeeping (retention, checkpoints, ISR checks, deadlines) and compaction."""
        for directory in self._directories:
            directory.on_offline = self._directory_offline
            directory.on_log_failed = self._log_failed
            directory.on_full = self._rooms.refused
            directory.start()
            if directory.offline is not None:  # since it was opened
                self._directory_offline(directory)
        self._housekeeping.start()
        self.cleaner.start()

    async def stop(self) -> None:
        """Stop fetchers, answer all waiters, write every checkpoint, close the logs cleanly."""
        self._stopped = True
        self._applier.stop()
        end = OrderlyEnd()
        for directory in reversed(self._directories):
            end.push(partial(self._close, directory))
        end.push(self._answer_all)
        for step in (
            self._fetchers.stop,
            self._proposer.stop,
            self._housekeeping.stop,
            self.cleaner.stop,
            self.moves.stop,
        ):
            end.push(step)
        await end.run()

    async def _close(self, directory: LogDirectory) -> None:
        lossy = self._relaxed[directory].lossy
        await directory.close(broker_epoch=self._broker_epoch(), is_reported=not lossy)

    def _answer_all(self) -> None:
        stopped = list(self._replicas)
        self._replicas.by_id.clear()  # whatever comes now is refused: not the leader
        for replica in stopped:
            effects = replica.machine.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._replicas.carry_out(replica, effects)
        self._fetch.stop()
        self._deadlines.close()

    def __iter__(self) -> Iterator[Replica]:
        """Every replica on this broker, for those who look on."""
        return iter(self._replicas)

    def get(self, partition: PartitionId) -> Replica | None:
        """One of them; None for a partition without a replica here."""
        return self._replicas.by_id.get(partition)

    @property
    def broker_epoch(self) -> int:
        """The broker epoch under which this broker fetches and proposes; -1 before there is one."""
        return self._broker_epoch()

    @property
    def hosted(self) -> Replicas:
        """Every replica here, and the metadata they go by. Callers must not change it."""
        return self._replicas

    def set_deposed(self, deposed: Callable[[], bool]) -> None:
        """``deposed`` says whether this broker leads nothing, whatever the metadata here say."""
        self._replicas.deposed = deposed

    def set_verifier(self, verifier: TransactionVerifier) -> None:
        """``verifier`` asks transaction coordinators before records of transactions are taken."""
        self._produce.transactional.verifier = verifier

    def write_markers(
        self, markers: Sequence[Marker], done: Callable[[list[ErrorCode]], None]
    ) -> None:
        """As ``MarkerRequests.write``."""
        self._markers.write(markers, done)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """Bring the replicas in line with the metadata: lead, follow, create, delete, configure.
        Each step is one turn of the event loop; see ``MetadataApplier.apply``.

        The first delta begins at the empty image and holds this broker's own registration: what an
        earlier incarnation led is led by somebody, or in a higher epoch, since.
        """
        if not self._stopped:
            self._set_rates(delta, image)
        steps = self._applier.apply(delta)
        # After a stop, following would append past the clean end that was noted.
        while not self._stopped and next(steps, _LAST) is not _LAST:
            yield

    def _set_rates(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Of replication throttles, before any replica is told that it is throttled."""
        own = ConfigResource.broker(self._broker_id)
        if self._is_first or any(each in (CLUSTER, own) for each in delta.changed_configs):
            self._is_first = False
            static = self._config.raw
            mine = (static, self._broker_id)
            self._leader_throttle.set_rate(throttled_rate(image, LEADER_THROTTLED_RATE, *mine))
            self._follower_throttle.set_rate(throttled_rate(image, FOLLOWER_THROTTLED_RATE, *mine))
            self.moves.set_rate(throttled_rate(image, MOVES_RATE, *mine))

    @property
    def has_online_directory(self) -> bool:
        return any(directory.offline is None for directory in self._directories)

    def corrupt_replicas(self) -> list[PartitionId]:
        """Replicas found corrupt and not yet rebuilt, or lost with their directory: to be reported
        at registration."""
        corrupt = [
            PartitionId(topic_id, key.partition)
            for directory in self._directories
            for key, topic_id in sorted(directory.corrupt_topic_ids.items())
            if topic_id is not None
        ]
        image, static = self._replicas.metadata.image, self._config.raw
        return corrupt + given_up(
            self._replicas,
            self._broker_id,
            lambda topic: unclean_election_enabled(image, topic, static),
        )

    def held_replicas(self) -> dict[bytes, list[PartitionId]]:
        """Replicas with a sound log, by directory id: to be told at registration."""
        return {
            decode_uuid(directory.properties.directory_id): [
                PartitionId(log.topic_id, key.partition)
                for key, log in directory.logs.items()
                if log.topic_id is not None
            ]
            for directory in self._directories
        }

    def unsynced_replicas(self) -> list[PartitionId]:
        """Replicas that may have lost acknowledged records: flush relaxed, unclean shutdown."""
        return [partition for relaxed in self._relaxed.values() for partition in relaxed.lossy]

    # ------------------------------------------------------------------------- requests

    def produce(
        self,
        entries: list[ProduceEntry],
        acks: int,
        timeout_ms: int,
        done: Callable[[list[ProduceResult]], None],
    ) -> None:
        """Validate, stamp and append batches; answer by ``acks`` (0, 1 or -1).

        0: answered at once after the append; 1: when durable here (by ``flush.messages``);
        -1: when below the high watermark, NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR falls
        below min.insync.replicas before, REQUEST_TIMED_OUT after ``timeout_ms``.
        """
        self._produce.produce(entries, acks, timeout_ms, done)

    def fetch(self, query: FetchQuery, done: Callable[[list[FetchResult]], None]) -> Cancel:
        """Read from local leaders, for consumers and followers alike; waits by the query.

        A follower has one fetch at a time: a newer one has the one before answered at once.
        """
        return self._fetch.fetch(query, done)

    def when_leading(self, listener: Callable[[PartitionId], None]) -> None:
        """Have the listener called whenever this broker begins to lead a partition in a leader
        epoch. That may be later than the metadata say so, if the log has to be made first."""
        self._on_leading.append(listener)

    def host(self, partition: PartitionId) -> HostedPartition | None:
        """The partition for a coordinator of this broker, if it leads it and its log is there."""
        replica = self._replicas.by_id.get(partition)
        if replica is None or replica.state is not ReplicaState.ONLINE:
            return None
        if not replica.machine.is_leader:
            return None
        return HostedPartition(
            replica,
            self._produce,
            lease_valid=self._lease_valid,
            deposed=self._replicas.deposed,
            on_corrupt=self._found_corrupt,
        )

    async def list_offsets(
        self, queries: Sequence[OffsetQuery], *, read_committed: bool = False
    ) -> list[OffsetResult]:
        """Earliest, latest, of a time, of the greatest time: see ListOffsets.

        ``read_committed``: nothing at or above the last stable offset is told.
        """
        return await self._offsets.list_offsets(queries, read_committed=read_committed)

    def end_offset_for_epoch(self, queries: Sequence[EpochQuery]) -> list[OffsetResult]:
        """The end of the greatest epoch not above the one asked for: OffsetForLeaderEpoch."""
        return self._offsets.end_offset_for_epoch(queries)

    # ------------------------------------------------------------------------- questions

    def leader_of(self, partition: PartitionId) -> LeaderHint:
        """Who leads by the metadata applied last; -1 for nobody or unknown."""
        return self._replicas.hint(partition)

    async def delete_records(
        self, deletions: Sequence[Deletion], timeout_ms: int
    ) -> list[DeletionResult]:
        """Let the logs of partitions that are led here begin later: DeleteRecords."""
        return await self._deletion.delete(deletions, timeout_ms)

    def alter_directory(self, partition: TopicPartition, path: str) -> ErrorCode:
        """As ``DirectoryMoves.alter``."""
        return self.moves.alter(partition, path)

    async def describe_directories(
        self, wanted: Collection[tuple[str, int]] | None
    ) -> list[DirectoryDescription]:
        """The log directories, with their replicas of the partitions ``wanted`` (None: all)."""
        return await self._descriptions.directories(wanted)

    def producers_of(self, partition: PartitionId) -> list[ProducerEntry]:
        """As ``ReplicaDescriptions.producers``."""
        return self._descriptions.producers(partition)

    def producer_of(
        self, partition: PartitionId, producer_id: int, current_leader_epoch: int
    ) -> LedProducer:
        """As ``ReplicaDescriptions.producer``. A leader without a lease may have a successor that
        knows more of the producer, and raises ApiError NOT_LEADER_OR_FOLLOWER, too."""
        if not self._lease_valid():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._descriptions.producer(partition, producer_id, current_leader_epoch)

    @property
    def counters(self) -> ReplicaCounters:
        """The totals, and the present values read anew."""
        counters = self._replicas.counters
        machines = [replica.machine for replica in self._replicas]
        counters.partition_count = len(machines)
        counters.leader_count = sum(machine.is_leader for machine in machines)
        counters.under_replicated = sum(machine.is_under_replicated for machine in machines)
        counters.under_min_isr = sum(
            machine.is_leader and machine.is_under_min_isr for machine in machines
        )
        counters.at_min_isr = sum(
            machine.is_leader and machine.is_at_min_isr for machine in machines
        )
        counters.reassigning = sum(
            machine.is_leader and machine.state.is_reassigning for machine in machines
        )
        counters.offline_replicas = self._applier.unmade + sum(
            replica.state is not ReplicaState.ONLINE for replica in self._replicas
        )
        return counters

    def traffic(self) -> Iterator[tuple[str, TopicTraffic]]:
        """Of each topic that has a replica here, by name."""
        return iter(sorted(self._replicas.traffic.items()))

    def log_sizes(self) -> Iterator[tuple[TopicPartition, int]]:
        """Bytes of each log that is online here."""
        for replica in self._replicas:
            if replica.state is ReplicaState.ONLINE:
                yield TopicPartition(replica.topic, replica.id.partition), replica.log.size_bytes

    def replica_lags(self) -> Iterator[tuple[TopicPartition, int, int]]:
        """(partition, broker id of a follower, records that it lacks) of what is led here."""
        for replica in self._replicas:
            name = TopicPartition(replica.topic, replica.id.partition)
            for broker_id, lag in replica.machine.follower_lags():
                yield name, broker_id, lag

    def high_watermarks(self) -> Iterator[tuple[TopicPartition, int]]:
        """Of the partitions that are led here, without those of internal topics."""
        for replica in self._replicas:
            if replica.machine.is_leader and replica.topic not in INTERNAL_TOPICS:
                name = TopicPartition(replica.topic, replica.id.partition)
                yield name, replica.machine.high_watermark

    # --------------------------------------------------------------------------- effects

    def _led(self, replica: Replica, effect: Led) -> None:
        self._fetchers.leave(replica.id)
        replica.log.assign_leader_epoch(effect.leader_epoch)
        logger.info(
            "%r: leading epoch %d from offset %d, high watermark %d, ISR %s",
            replica,
            effect.leader_epoch,
            effect.start_offset,
            replica.machine.high_watermark,
            list(replica.machine.state.isr),
        )
        replica.wake_all()
        for listener in self._on_leading:
            listener(replica.id)

    def _followed(self, replica: Replica, effect: Followed) -> None:
        if effect.leader == NO_LEADER or replica.state is not ReplicaState.ONLINE:
            self._fetchers.leave(replica.id)
        else:
            self._fetchers.follow(replica, effect.leader, effect.leader_epoch)
        replica.wake_all()

    def _proposed(self, replica: Replica, effect: Proposed) -> None:
        self._proposer.propose(replica.id, effect)

    def _still_wanted(self, partition: PartitionId, proposal: Proposed) -> bool:
        replica = self._replicas.by_id.get(partition)
        return replica is not None and replica.machine.proposal == proposal

    def _isr_answered(self, partition: PartitionId, proposal: Proposed, answer: IsrAnswer) -> None:
        replica = self._replicas.by_id.get(partition)
        if replica is not None:
            effects = replica.machine.answered(proposal, answer, self._replicas.now_ms())
            self._replicas.unsettled[partition] = None
            self._replicas.carry_out(replica, effects)
            replica.stir_followers()

    def _count_copied(self, verdict: Verdict) -> None:
        self._replicas.counters.replication_bytes_in += verdict.written_bytes
        self._replicas.counters.transactions_cut_total += verdict.cut_transactions

    def _count_throttled(self, size_bytes: int) -> None:
        self._replicas.counters.throttled_bytes_in += size_bytes

    async def _connect(self, leader_id: int) -> LeaderConnection:
        registration = self._replicas.metadata.image.broker(leader_id)
        listener = self._config.inter_broker_listener_name
        endpoint = registration and registration.endpoint(listener)
        if not endpoint:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {leader_id} has no listener {listener}"
            )
        return await LeaderConnection.open(
            self._world.network,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._broker_id}-fetcher",
            timeout_s=self._config.replica_socket_timeout_ms / 1000,
        )

    # -------------------------------------------------------------------------- failures

    def _directory_offline(self, directory: LogDirectory) -> None:
        """The directory is offline: nothing in it is served or acknowledged any more."""
        for replica in list(self._replicas):
            if replica.directory is directory and replica.state is ReplicaState.ONLINE:
                self._take_down(replica, ReplicaState.OFFLINE)
        self._directory_failed(directory.path)

    def _found_corrupt(self, replica: Replica, log: PartitionLog, error: CorruptLogError) -> None:
        """Give up a corrupt replica until another broker leads: it is not served, and not dropped.

        If only a part cannot be read and no other replica has the records, the rest is served.
        """
        if not replica.uses(log):
            return  # removed, given up already, or begun anew while the device tried to read it
        logger.error("%r: %s", replica, error)
        if isinstance(error, UnreadableLogError) and not self._others_have(replica):
            if log.offline is not None:
                logger.error(
                    "%r is offline until this broker is restarted and recovers it: no other broker "
                    "has all its records",
                    replica,
                )
                self._take_down(replica, ReplicaState.OFFLINE)
            return
        replica.directory.mark_corrupt(replica.topic, replica.id.partition, error)
        self._take_down(replica, ReplicaState.CORRUPT)
        self._corruption_found()

    def _others_have(self, replica: Replica) -> bool:
        """Whether another broker may lead in the place of this one, with all that is committed."""
        return any(member != self._broker_id for member in replica.complete_members)

    def _log_failed(self, log: PartitionLog, error: OSError) -> None:
        """A change of it was cut short, for no fault of the disk's: what is there is not known."""
        for replica in list(self._replicas):
            if replica.uses(log):
                reason = f"a change was cut short: {error}"
                cut_short = CutShortError(
                    log.directory, position=0, offset=log.end_offset, reason=reason
                )
                self._found_corrupt(replica, log, cut_short)

    def _take_down(self, replica: Replica, state: ReplicaState) -> None:
        self._fetchers.leave(replica.id)
        replica.take_down(state)
        self.moves.taken_down(replica)
        effects = replica.machine.fail_waiters(replica.refusal)
        self._replicas.carry_out(replica, effects)
        replica.wake_all()
