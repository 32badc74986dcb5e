"""The replicas of one broker, put together: the parts, and what an event in one means to others.

The parts: the registry (``hosted``), requests (``produce``, ``markers``, ``fetch``, ``offsets``,
``deletion``), the metadata, the fetchers that follow other brokers, the ISR proposals,
housekeeping, compaction (``cleaner``), ``moves`` between directories, and what is told of all of
them (``descriptions``, ``measures``, ``reports``). Handlers work with a part itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from broker.membership.directories import Unopened
from broker.membership.room import Rooms
from broker.partition.effects import Followed, IsrAnswer, Led, Proposed
from broker.replication.assignments import AssignReplicas, DirectoryAssignments
from broker.replication.cleaner import Cleaner
from broker.replication.deadlines import DeadlineWheel
from broker.replication.deletion import DeleteRequests
from broker.replication.descriptions import ReplicaDescriptions
from broker.replication.events import ReplicaEvents
from broker.replication.fetch import FetchRequests
from broker.replication.fetcher import Fetchers
from broker.replication.follower import Verdict
from broker.replication.follower_throttle import FollowerThrottle
from broker.replication.hosted import Hosting
from broker.replication.housekeeping import Housekeeping
from broker.replication.isr_proposer import AlterPartition, IsrProposer
from broker.replication.leader_connection import LeaderConnection
from broker.replication.leader_throttle import LeaderThrottle
from broker.replication.log_deletion import LogDeletion
from broker.replication.markers import MarkerRequests
from broker.replication.measures import ReplicaMeasures
from broker.replication.metadata import MetadataApplier
from broker.replication.moves import DirectoryMoves
from broker.replication.offsets import OffsetRequests
from broker.replication.produce import ProduceRequests
from broker.replication.recompression import Recompression
from broker.replication.relaxed_flush import RelaxedFlush
from broker.replication.replica import Replica, ReplicaState
from broker.replication.replicas import Metadata, Replicas
from broker.replication.reports import ReplicaReports
from broker.replication.unopened import UnopenedReplicas
from metadata.config_keys import FOLLOWER_THROTTLED_RATE, LEADER_THROTTLED_RATE, MOVES_RATE
from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta
from metadata.directories import REPLICA_DIRECTORIES
from metadata.effective import throttled_rate
from metadata.features import metadata_version
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER
from runtime.config.in_force import in_force
from runtime.config.node import NodeConfig
from runtime.orderly_end import OrderlyEnd
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.directory import LogDirectory
from storage.errors import CorruptLogError, CutShortError, UnreadableLogError
from storage.log import PartitionLog
from world.world import World

logger = logging.getLogger(__name__)

_LAST: Final = object()


class ReplicaManager(ReplicaEvents):
    """All replicas of this broker. Everything runs on the event loop; nothing blocks."""

    def __init__(
        self,
        *,
        broker_id: int,
        world: World,
        directories: Sequence[LogDirectory],
        unopened: Sequence[Unopened],
        config: NodeConfig,
        metadata: Metadata,
        broker_epoch: Callable[[], int],
        alter_partition: AlterPartition,
        assign_replicas: AssignReplicas,
        lease_valid: Callable[[], bool],
        deposed: Callable[[], bool],
        directory_failed: Callable[[str], None],
        corruption_found: Callable[[], None],
        rooms: Rooms,
        answer_share: Callable[[], int],
    ) -> None:
        """``directories`` are opened already (recovery done); they are closed by ``stop``.
        ``unopened`` are the other directories of the configuration, which are offline.

        ``metadata`` holds the image to go by; before ``apply`` is called it has the new one.
        ``broker_epoch``: of the newest registration; goes into Fetch and AlterPartition.
        ``alter_partition`` and ``assign_replicas`` reach the active controller; they raise
        RpcError or ApiError.
        ``lease_valid`` says, reading the Clock anew, whether the last acknowledged heartbeat
        was sent less than the session timeout ago; a leader without acknowledges nothing.
        ``deposed`` says whether this broker leads nothing, whatever the metadata here say.
        ``directory_failed`` is told the path of a directory that was taken offline.
        ``corruption_found`` is told that ``reports.corrupt`` names more than before: they have to
        be reported as those found at start, so that somebody else may lead.
        ``rooms`` is told of writes that are refused for want of space.
        ``answer_share``: how many bytes the next answer to a consumer may take.
        """
        self._broker_id = broker_id
        self._world = world
        self._brokers = world.network.secured(config.security.to_brokers)
        self._config = config
        self._directory_failed = directory_failed
        self._corruption_found = corruption_found
        self._broker_epoch = broker_epoch
        self._rooms = rooms
        self._unopened = tuple(unopened)
        self._is_first = True  # nothing was applied yet
        self._stopped = False  # nothing is written to a log from then on
        self._directories = {each: RelaxedFlush(world.disk, each) for each in directories}
        self.hosted = Replicas(
            broker_id,
            world.clock,
            metadata,
            self,
            deposed,
            tells_high_watermarks_at_once=config.selects_replicas_by_rack,
        )
        self._make_requests(lease_valid, answer_share)
        self._make_followers(alter_partition)
        self._make_upkeep(assign_replicas)
        self.descriptions = ReplicaDescriptions(
            self.hosted, directories, self.moves, self._applier.unopened, world.disk, lease_valid
        )
        self.measures = ReplicaMeasures(self.hosted, self._applier)
        self.reports = ReplicaReports(self.hosted, self._directories, config)

    def _make_requests(
        self, lease_valid: Callable[[], bool], answer_share: Callable[[], int]
    ) -> None:
        """What clients, followers and coordinators ask of the replicas."""
        replicas = self.hosted
        self._deadlines = DeadlineWheel(self._world.clock)
        self._leader_throttle = LeaderThrottle(replicas, self._deadlines)
        recompression = Recompression(self._world.compute)
        self.produce = ProduceRequests(
            replicas, self._deadlines, lease_valid, recompression, self.corrupt
        )
        self.markers = MarkerRequests(self.produce, lease_valid)
        self.fetch = FetchRequests(
            replicas,
            self._deadlines,
            self.corrupt,
            answer_share,
            self._leader_throttle,
            lease_valid,
            self._config.fetch_max_bytes,
        )
        self.offsets = OffsetRequests(replicas, lease_valid, self.corrupt)
        self.deletion = DeleteRequests(replicas, lease_valid)
        self.hosting = Hosting(replicas, self.produce, lease_valid, self.corrupt)

    def _make_followers(self, alter_partition: AlterPartition) -> None:
        """What follows other brokers, and what proposes ISRs."""
        self._follower_throttle = FollowerThrottle(
            self._world.clock, broker_id=self._broker_id, count_bytes=self._count_throttled
        )
        self._fetchers = Fetchers(
            throttle=self._follower_throttle,
            broker_id=self._broker_id,
            config=self._config,
            connect=self._connect,
            broker_epoch=self._broker_epoch,
            count=self._count_copied,
            on_corrupt=self.corrupt,
            tracer=self._world.tracer,
        )
        self._proposer = IsrProposer(
            broker_id=self._broker_id,
            alter_partition=alter_partition,
            broker_epoch=self._broker_epoch,
            registered_epoch=self.hosted.registered_epoch,
            still_wanted=self._still_wanted,
            answered=self._isr_answered,
        )

    def _make_upkeep(self, assign_replicas: AssignReplicas) -> None:
        """What makes, changes and deletes replicas and logs."""
        replicas, directories, rooms = self.hosted, self._directories, self._rooms
        deletion = LogDeletion(directories)
        self._assignments = DirectoryAssignments(
            replicas,
            directory_count=len(self._config.log_dirs),
            assign_replicas=assign_replicas,
            broker_epoch=self._broker_epoch,
        )
        self.cleaner = Cleaner(
            replicas,
            self._world.disk,
            self._config,
            is_paused=self._is_moving,
        )
        unopened = UnopenedReplicas(self._unopened, directories, self._assignments)
        replicas.unopened = unopened
        self.moves = DirectoryMoves(
            replicas, directories, unopened, rooms, self.cleaner, deletion, self._assignments, self
        )
        self._applier = MetadataApplier(
            replicas,
            self._config,
            directories,
            unopened,
            deletion,
            self.moves,
            self._assignments,
            self,
        )
        self._housekeeping = Housekeeping(
            replicas, self._config, tuple(directories), self._applier, rooms
        )

    def _is_moving(self, partition: PartitionId) -> bool:
        return self.moves.is_moving(partition)

    # ------------------------------------------------------------------------- life

    def start(self) -> None:
        """Begin housekeeping (retention, checkpoints, ISR checks, deadlines) and compaction."""
        for unopened in self._unopened:
            self._rooms.leave_out(unopened.path)
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
        for directory in reversed(list(self._directories)):
            end.push(partial(self._close, directory))
        end.push(self._answer_all)
        for step in (
            self._fetchers.stop,
            self._proposer.stop,
            self._housekeeping.stop,
            self.cleaner.stop,
            self.moves.stop,
            self._assignments.stop,  # moves wait for it; the last step is the first one
        ):
            end.push(step)
        await end.run()

    async def _close(self, directory: LogDirectory) -> None:
        lossy = self._directories[directory].lossy
        await directory.close(broker_epoch=self._broker_epoch(), is_reported=not lossy)

    def _answer_all(self) -> None:
        stopped = list(self.hosted)
        self.hosted.by_id.clear()  # whatever comes now is refused: not the leader
        for replica in stopped:
            effects = replica.machine.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.hosted.carry_out(replica, effects)
        self.fetch.stop()
        self._deadlines.close()

    def __iter__(self) -> Iterator[Replica]:
        """Every replica on this broker, for those who look on."""
        return iter(self.hosted)

    def get(self, partition: PartitionId) -> Replica | None:
        """One of them; None for a partition without a replica here."""
        return self.hosted.by_id.get(partition)

    @property
    def broker_epoch(self) -> int:
        """The broker epoch under which this broker fetches and proposes; -1 before there is one."""
        return self._broker_epoch()

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """Bring the replicas in line with the metadata: lead, follow, create, delete, configure.
        Each step is one turn of the event loop; see ``MetadataApplier.apply``.

        The first delta begins at the empty image and holds this broker's own registration: what an
        earlier incarnation led is led by somebody, or in a higher epoch, since.
        """
        if not self._stopped:
            self._set_limits(delta, image)
        steps = self._applier.apply(delta)
        # After a stop, following would append past the clean end that was noted.
        while not self._stopped and next(steps, _LAST) is not _LAST:
            yield
        if metadata_version(image) < REPLICA_DIRECTORIES <= metadata_version(delta.image):
            # Heartbeats name the failed directories, and mean nothing below this level.
            self._corruption_found()

    def _set_limits(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The rates of replication throttles, before a replica hears that it is throttled; and the
        settings of the node that the cleaner and the logs use."""
        own = ConfigResource.broker(self._broker_id)
        if self._is_first or any(each in (CLUSTER, own) for each in delta.changed_configs):
            self._is_first = False
            config = in_force(self._config, image, self._broker_id)
            self.cleaner.configure(config)
            self._applier.configure(config)
            static = self._config.raw
            mine = (static, self._broker_id)
            self._leader_throttle.set_rate(throttled_rate(image, LEADER_THROTTLED_RATE, *mine))
            self._follower_throttle.set_rate(throttled_rate(image, FOLLOWER_THROTTLED_RATE, *mine))
            self.moves.set_rate(throttled_rate(image, MOVES_RATE, *mine))

    # ---------------------------------------------------------------------------- events

    def led(self, replica: Replica, effect: Led) -> None:
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
        self.hosting.leads(replica.id)

    def followed(self, replica: Replica, effect: Followed) -> None:
        if effect.leader == NO_LEADER or replica.state is not ReplicaState.ONLINE:
            self._fetchers.leave(replica.id)
        else:
            self._fetchers.follow(replica, effect.leader, effect.leader_epoch)
        replica.wake_all()

    def proposed(self, replica: Replica, effect: Proposed) -> None:
        self._proposer.propose(replica.id, effect)

    def changed(self, replica: Replica) -> None:
        self._fetchers.look_again(replica.id)

    def settled(self, replica: Replica) -> None:
        self._fetchers.made_durable(replica.id)

    def corrupt(self, replica: Replica, log: PartitionLog, error: CorruptLogError) -> None:
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
                self.take_down(replica, ReplicaState.OFFLINE)
            return
        replica.directory.mark_corrupt(replica.topic, replica.id.partition, error)
        self.take_down(replica, ReplicaState.CORRUPT)
        self._corruption_found()

    def take_down(self, replica: Replica, state: ReplicaState) -> None:
        self._fetchers.leave(replica.id)
        replica.take_down(state)
        self.moves.taken_down(replica)
        self._assignments.look(replica)
        effects = replica.machine.fail_waiters(replica.refusal)
        self.hosted.carry_out(replica, effects)
        replica.wake_all()

    def corrupt_named(self) -> None:
        self._corruption_found()

    # -------------------------------------------------------------------------- failures

    def _directory_offline(self, directory: LogDirectory) -> None:
        """The directory is offline: nothing in it is served or acknowledged any more.

        The controller gives up the replicas that it knows in this directory. It knows a replica
        that is not settled in another one, so that replica is reported by itself.
        """
        concerned = [replica for replica in self.hosted if replica.directory is directory]
        for replica in concerned:
            if replica.state is ReplicaState.ONLINE:
                self.take_down(replica, ReplicaState.OFFLINE)
        if directory.path != self._config.metadata_log_dir:
            self._rooms.leave_out(directory.path)
        self._directory_failed(directory.path)
        is_unsettled = any(not replica.is_settled for replica in concerned)
        if is_unsettled and self.reports.has_online_directory:  # else the broker is fenced
            self._corruption_found()

    def _others_have(self, replica: Replica) -> bool:
        """Whether another broker may lead in the place of this one, with all that is committed."""
        return any(member != self._broker_id for member in replica.complete_members)

    def _log_failed(self, log: PartitionLog, error: OSError) -> None:
        """A change of it was cut short, for no fault of the disk's: what is there is not known."""
        for replica in list(self.hosted):
            if replica.uses(log):
                reason = f"a change was cut short: {error}"
                cut_short = CutShortError(
                    log.directory, position=0, offset=log.end_offset, reason=reason
                )
                self.corrupt(replica, log, cut_short)

    # ------------------------------------------------------------- what parts ask and tell

    def _still_wanted(self, partition: PartitionId, proposal: Proposed) -> bool:
        replica = self.hosted.by_id.get(partition)
        return replica is not None and replica.machine.proposal == proposal

    def _isr_answered(self, partition: PartitionId, proposal: Proposed, answer: IsrAnswer) -> None:
        replica = self.hosted.by_id.get(partition)
        if replica is not None:
            effects = replica.machine.answered(proposal, answer, self.hosted.now_ms())
            self.hosted.unsettled[partition] = None
            self.hosted.carry_out(replica, effects)
            replica.stir_followers()

    def _count_copied(self, verdict: Verdict) -> None:
        self.hosted.counters.replication_bytes_in += verdict.written_bytes
        self.hosted.counters.transactions_cut_total += verdict.cut_transactions

    def _count_throttled(self, size_bytes: int) -> None:
        self.hosted.counters.throttled_bytes_in += size_bytes

    async def _connect(self, leader_id: int) -> LeaderConnection:
        registration = self.hosted.metadata.image.broker(leader_id)
        listener = self._config.inter_broker_listener_name
        endpoint = registration and registration.endpoint(listener)
        if not endpoint:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {leader_id} has no listener {listener}"
            )
        return await LeaderConnection.open(
            self._brokers,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._broker_id}-fetcher",
            timeout_s=self._config.replica_socket_timeout_ms / 1000,
        )
