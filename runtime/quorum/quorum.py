"""The metadata quorum as a node runs it: the pure Raft core with a log, peers and listeners.

Every event (a message, a deadline, a finished sync, a proposal) goes through the ``Driver`` into
``RaftCore``. The resulting ``Ready`` is carried out here at once and in order: log, messages, then
the sync task for what must be durable first, and the delivery task for committed batches. Nothing
here decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial

from raft.api import LeaderAndEpoch, NotLeaderError, QuorumListener
from raft.core import RaftCore
from raft.membership import VoterChange
from raft.messages import SnapshotId
from raft.quorum import FeatureLevels, ReplicaKey, VoterSet
from raft.ready import Call, HardState, Outbound, Ready, Role, Status
from raft.timing import Timing
from runtime.config.addresses import NamedAddress
from runtime.orderly_end import OrderlyEnd
from runtime.quorum.administration import Administration, BeginRequest
from runtime.quorum.changes import QuorumChanges, VoterCheck
from runtime.quorum.config import QuorumConfig
from runtime.quorum.delivery import Delivery
from runtime.quorum.driver import Driver
from runtime.quorum.endpoints import Endpoints
from runtime.quorum.inbox import Inbox
from runtime.quorum.log import HistoryPiece, QuorumLog
from runtime.quorum.own_record import OwnRecord
from runtime.quorum.peers import Peers
from runtime.quorum.read_index import confirm_leadership
from runtime.quorum.room import hand_over
from runtime.quorum.service import QuorumService
from runtime.quorum.snapshot_writer import SnapshotSource, SnapshotWriter
from stele.errors import ApiError, ErrorCode
from storage.errors import StorageError, is_device_failure
from world.network import Service
from world.world import World

_log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL_S = 2.0  # also the tail whose damage looks like a torn write
RESIGN_GRACE_S = 0.5
_HANDOVER_INTERVAL_S = 5.0  # between two attempts of a leader without room to leave


class Quorum:
    """A replica of ``__cluster_metadata-0``: a voter on controllers, an observer on brokers.

    Satisfies ``raft.api.MetadataQuorum``. Life: make it, ``add_listener``, ``start``, serve
    ``service()`` on the controller's port, ``stop``. ``on_fatal`` is called once, on the event
    loop, when the replica cannot go on (its disk failed, its log is corrupt); by then it has
    stepped down and answers nothing.
    """

    def __init__(
        self,
        config: QuorumConfig,
        world: World,
        log_directory: str,
        *,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._world = world
        self._log_directory = log_directory
        self._on_fatal = on_fatal
        self._listeners: list[QuorumListener] = []
        self._driver = Driver(world.clock, carry_out=self._carry_out, fail=self._fail)
        self._endpoints = Endpoints(config)
        self._changes = QuorumChanges(config.node_id, self._driver)
        self._service = QuorumService(config, self._driver, self._endpoints)
        controllers = {
            listener: world.network.secured(security)
            for listener, security in config.controllers.items()
        }
        self._administration = Administration(config, controllers, self._driver, self._changes)
        inbox = Inbox(config, self._driver)
        self._peers = Peers(config, controllers, self._endpoints, inbox, self._fail)
        self._own_record = OwnRecord(config, self._driver, self._peers, self._changes)
        self._claimed: int | None = None  # the epoch told by on_claimed and not by on_resigned
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._ending: asyncio.Task[None] | None = None  # set once the replica has failed
        self._snapshot_source: SnapshotSource | None = None
        self._snapshots: SnapshotWriter | None = None
        # The ticket that the next sync makes durable, and the messages that may leave then.
        self._unsynced = asyncio.Event()
        self._handover_at = 0.0  # not tried again before, monotonic
        self._ticket = 0
        self._hard_state: HardState | None = None
        self._held: list[Outbound] = []
        self._elections = 0
        # (base offset, when it was proposed) of what is not committed yet, in the log's order.
        self._proposed: deque[tuple[int, float]] = deque()
        self._observe_commit: Callable[[float], None] = _ignore_time

    # ------------------------------------------------------------------------------- facts

    @property
    def core(self) -> RaftCore | None:
        """To be looked at only; None before start and after the end."""
        return self._driver.core

    @property
    def status(self) -> Status:
        """As the listeners were last told."""
        return self._driver.status

    @property
    def leader(self) -> LeaderAndEpoch:
        return self._driver.leader

    @property
    def high_watermark(self) -> int:
        return -1 if self.core is None else self.core.high_watermark

    @property
    def log_end_offset(self) -> int:
        return 0 if self.core is None else self.core.log.end_offset

    @property
    def log_start_offset(self) -> int:
        """The log's start; everything before it is in a snapshot only."""
        return 0 if self.core is None else self.core.log.start_offset

    @property
    def role(self) -> Role:
        return self._driver.status.role

    @property
    def elections(self) -> int:
        """How many leaders this replica has heard of since it was made, itself included."""
        return self._elections

    @property
    def delivered_offset(self) -> int:
        """The listeners have all committed records below it."""
        return 0 if self.core is None else self._delivery.delivered

    def on_commit_time(self, observe: Callable[[float], None]) -> None:
        """``observe`` gets the seconds from each proposal of this leader to its commit."""
        self._observe_commit = observe

    @property
    def in_touch(self) -> bool:
        """Whether this replica leads or hears from a leader."""
        if self.core is None:
            return False
        if self._driver.status.role is Role.OBSERVER:
            return self._driver.status.leader_id is not None
        return self.core.in_touch(self._driver.now())

    @property
    def hears_leader(self) -> bool:
        """Whether it leads, or was answered by the leader within the fetch timeout."""
        return self.core is not None and self.core.in_touch(self._driver.now())

    @property
    def heard_voters(self) -> dict[int, bool] | None:
        """Whether each voter has fetched from this leader within the fetch timeout. None: it
        does not lead."""
        if self.core is None or self.role is not Role.LEADER:
            return None
        since = self._driver.now() - self._config.fetch_timeout_ms / 1000
        return {
            view.key.id: view.last_fetch_at is not None and view.last_fetch_at >= since
            for view in self.core.describe(self._driver.now())
            if view.is_voter
        }

    @property
    def has_room(self) -> bool:
        """Whether the disk has room for the metadata log. Raises OSError."""
        return self._log.has_room()

    @property
    def voters(self) -> VoterSet:
        """The newest that this replica knows of; they may not be committed yet."""
        return self._config.first_voters if self.core is None else self.core.voters

    @property
    def controller_features(self) -> Mapping[int, tuple[FeatureLevels, ...]]:
        """See ``raft.api.MetadataQuorum``."""
        voters = self.voters if self.core is None else self.core.voters_to_be
        return {voter.id: voter.features for voter in voters.voters}

    async def read_history(self, offset: int) -> HistoryPiece:
        """A part of what was committed, from ``offset`` on. Raises ApiError, SteleError."""
        if self.core is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata log is not open")
        return await self._log.read_history(offset, self.high_watermark)

    def endpoint(self, node_id: int) -> NamedAddress | None:
        """The listener by which this node reaches a controller; None if it is not known here."""
        return self._endpoints.get(node_id)

    def next_offset(self, *, epoch: int) -> int:
        """See ``raft.api.MetadataQuorum``."""
        return self._driver.leading(epoch).log.end_offset

    def service(self) -> Service:
        """The handlers of ``stele.v1.Raft``; voters serve it, observers have no need to."""
        service = self._service.service()
        service.include(self._administration.service())
        return service

    # -------------------------------------------------------------------------------- life

    def add_listener(self, listener: QuorumListener) -> None:
        """Before ``start`` only: every listener sees every committed batch."""
        if self.core is not None:
            raise RuntimeError("a listener that comes after start would miss batches")
        self._listeners.append(listener)

    def take_snapshots_of(self, source: SnapshotSource) -> None:
        """Before ``start``. ``source`` gives the records of the image that the listeners have
        made of everything delivered so far, in one turn of the loop; None: it has none to give."""
        self._snapshot_source = source

    def check_voters_by(self, check: VoterCheck) -> None:
        """Before ``start``. A leader asks ``check`` before it adds or updates a voter."""
        self._changes.voter_check = check

    def begin_requests_by(self, begin: BeginRequest) -> None:
        """Before ``start``. A leader asks ``begin`` before it acts on a request with an id."""
        self._administration.begin_request = begin

    async def start(self) -> None:
        """Recover the log, read ``quorum-state``, join.

        Raises SteleError when the replica must not start (its log is corrupt, the state file is
        of another cluster or lost), OSError when the disk fails. Both say what to do.
        """
        config = self._config
        self._log = QuorumLog(config, self._world, self._log_directory)
        self._delivery = Delivery(self._log)
        self._delivery.listeners = self._listeners
        if self._snapshot_source is not None:
            self._snapshots = SnapshotWriter(
                config, self._world.clock, self._log, self._delivery, self._snapshot_source
            )
        core = RaftCore(
            ReplicaKey(config.node_id, config.directory_id),
            await self._log.voter_history(),
            self._log.view(),
            self._log.hard_state,
            timing_of(config),
            self._world.rng,
            snapshot=self._log.snapshots.newest,
            bootstrap=self._endpoints.bootstrap_ids,
            is_founder=self._log.is_founder,
        )
        self._driver.begin(core, self._log)
        self._settle_peers()
        self._spawn(self._sync_forever(), "quorum-sync")
        self._spawn(self._delivery.run(), "quorum-delivery")
        self._spawn(self._checkpoint_forever(), "quorum-checkpoint")
        if config.own_endpoint:
            self._spawn(self._own_record.keep_true(), "quorum-own-record")
        self._driver.take(lambda core, now: core.start(now))

    async def stop(self) -> None:
        """Resign if leading, telling the voters; end every task; sync and close the log."""
        if self._ending is not None:
            await self._ending
        core = self.core
        if core is None or self._stopping:
            return
        self._stopping = True
        self._driver.stop_ticking()
        end = OrderlyEnd()
        end.push(partial(self._close_log, core))
        end.push(self._end)
        if core.role is Role.LEADER:
            _log.info("resigning from epoch %d", core.epoch)
            self._driver.take(lambda core, now: core.resign(now))
            end.push(partial(self._peers.finish, timeout_s=RESIGN_GRACE_S))
        await end.run()

    async def _close_log(self, core: RaftCore) -> None:
        try:
            await self._log.sync(self._hard_state, self._log.begin_sync())
            await self._log.checkpoint(core.high_watermark)
        except OSError as error:
            # Nothing of it was promised to anybody: recovery does what is left.
            _log.error("the metadata log could not be closed cleanly: %s", error)
        finally:
            self._log.close()

    async def _end(self) -> None:
        self._driver.end()
        self._driver.wake()
        self._service.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peers.close()
        self._delivery.flush_news()

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Step down for good: answer nothing, call nobody, and tell the listeners."""
        if self.core is None:
            _log.error("the stopped replica of the metadata quorum: %s", error, exc_info=error)
            return
        _log.critical("this replica of the metadata quorum stops: %s", error, exc_info=error)
        self._tell_status(Status(Role.RESIGNED, self._driver.status.epoch, None))
        self._driver.end()
        self._service.close()
        self._ending = asyncio.get_running_loop().create_task(self._give_up(), name="quorum-end")
        self._on_fatal(error)

    async def _give_up(self) -> None:
        await self._end()
        self._log.close()

    # ------------------------------------------------------------------------------ events

    def propose(self, records: Sequence[bytes], *, epoch: int) -> int:
        """Append one batch (one decision) as leader of ``epoch``; return its base offset.

        Raises NotLeaderError, ApiError RECORD_LIST_TOO_LARGE (nothing was appended), or
        StorageError when the disk is full (nothing was appended) or has failed, and this replica
        with it.
        """
        core = self._driver.leading(epoch)
        if core.transferring_to is not None:
            raise NotLeaderError(LeaderAndEpoch(None, epoch))
        base_offset = core.log.end_offset
        payload = self._log.encode_proposal(records, epoch)
        try:
            self._log.require_room(len(payload))
        except StorageError:
            self._leave_for_want_of_room()
            raise
        self._driver.take(lambda core, now: core.propose(payload, len(records), now))
        if self.core is None:
            raise StorageError(f"{self._log.directory}: the metadata log takes nothing any more")
        if self.high_watermark <= base_offset:  # a single voter may have committed it at once
            self._proposed.append((base_offset, self._driver.now()))
        return base_offset

    def _leave_for_want_of_room(self) -> None:
        now = self._driver.now()
        if now < self._handover_at:
            return
        self._handover_at = now + _HANDOVER_INTERVAL_S
        config = self._config
        work = hand_over(config.node_id, config.cluster_id, self.voters, self._peers, self._changes)
        self._spawn(work, "quorum-handover")

    async def confirm_leadership(self, *, epoch: int) -> int:
        """See ``raft.api.MetadataQuorum``."""
        return await confirm_leadership(self._driver, epoch)

    async def transfer_leadership(self, to: int) -> None:
        """Hand leadership to voter ``to``; return once it leads. Raises NotLeaderError, ApiError:
        then who leads is in ``leader``."""
        await self._changes.transfer_leadership(to)

    async def change_voters(self, change: VoterChange) -> None:
        """Add, remove or update a voter; return once that is committed. Raises NotLeaderError
        (nothing was changed), or ApiError with what happened."""
        await self._changes.change_voters(change)

    # ---------------------------------------------------------------------------- carry out

    def _carry_out(self, ready: Ready) -> None:
        """In the order that ``raft.ready`` lays down."""
        self._store_snapshot(ready)
        if ready.truncate_to is not None:
            self._log.truncate_to(ready.truncate_to)
        self._log.append(ready.append)
        for request_id in ready.cancel:
            self._peers.cancel(request_id)
        self._send(ready.send)
        self._hold(ready)
        if ready.committed is not None:
            self._delivery.committed(ready.committed[1])
            self._count_committed(ready.committed[1])
        if ready.status is not None:
            self._tell_status(ready.status)
        if ready.status is not None or ready.voters is not None:
            self._settle_peers()
            self._own_record.voters_changed()
        self._maybe_claim()

    def _count_committed(self, end_offset: int) -> None:
        now = self._driver.now()
        while self._proposed and self._proposed[0][0] < end_offset:
            self._observe_commit(now - self._proposed.popleft()[1])

    def _store_snapshot(self, ready: Ready) -> None:
        for piece in ready.pieces:
            self._log.snapshots.receive(piece)
            if piece.is_last:
                self._spawn(self._check_snapshot(piece.snapshot), "quorum-snapshot-check")
        if ready.install is not None:
            _log.warning("%s takes the place of the metadata log", ready.install)
            self._log.install(ready.install)
            self._delivery.installed(ready.install)

    async def _check_snapshot(self, snapshot: SnapshotId) -> None:
        content = await self._log.snapshots.check_received(snapshot)
        voters = None if content is None else content.voters
        self._driver.take(
            lambda core, now: core.snapshot_checked(
                snapshot, now, sound=content is not None, voters=voters
            )
        )
        if self._log.snapshots.newest != snapshot:
            self._log.snapshots.discard(snapshot)  # unsound, or this replica follows no more

    def _send(self, outbound: Sequence[Outbound]) -> None:
        for item in outbound:
            if isinstance(item, Call):
                self._peers.send(item)
            else:
                self._service.reply(item)

    def _hold(self, ready: Ready) -> None:
        if ready.hard_state is not None:
            self._hard_state = ready.hard_state
        self._ticket = max(self._ticket, ready.ticket)
        self._held.extend(ready.send_after_persist)
        if ready.ticket or ready.send_after_persist:
            self._unsynced.set()

    async def _sync_forever(self) -> None:
        """One sync at a time; what comes meanwhile goes into the next."""
        while True:
            await self._unsynced.wait()
            self._unsynced.clear()
            ticket, hard_state, held = self._ticket, self._hard_state, self._held
            self._ticket, self._hard_state, self._held = 0, None, []
            await self._log.sync(hard_state, self._log.begin_sync())
            if self.core is None:
                return
            self._send(held)
            if ticket:
                self._persisted(ticket)

    def _persisted(self, ticket: int) -> None:
        self._driver.take(lambda core, now: core.persisted(ticket, now))

    async def _checkpoint_forever(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_INTERVAL_S)
            try:
                await self._log.checkpoint(self.high_watermark)
            except OSError as error:
                if is_device_failure(error):
                    raise
                _log.error("no checkpoint of the metadata log this time: %s", error)
            if self._snapshots is not None:
                await self._snapshots.take_if_due(self.core)

    # ----------------------------------------------------------------------------- telling

    def _settle_peers(self) -> None:
        if self.core is not None:
            self._peers.settle(self.core.voters, self.leader.leader_id)

    def _tell_status(self, status: Status) -> None:
        was, self._driver.status = self._driver.status, status
        if status.leader_id is not None and (was.leader_id, was.epoch) != (
            status.leader_id, status.epoch,
        ):  # fmt: skip
            self._elections += 1
        if status.role is not Role.LEADER:
            self._proposed.clear()  # whether it commits is for others to see
        leading = status.role is Role.LEADER
        if self._claimed is not None and (not leading or status.epoch != self._claimed):
            resigned, self._claimed = self._claimed, None
            self._delivery.tell(lambda listener: listener.on_resigned(resigned))
        if (was.leader_id, was.epoch) != (status.leader_id, status.epoch):
            leader = self.leader
            _log.info(
                "%s in epoch %d, leader %s", status.role.value, leader.epoch, leader.leader_id
            )
            self._delivery.tell(lambda listener: listener.on_leader_change(leader))

    def _maybe_claim(self) -> None:
        """Claimed once the epoch's first batch is committed, and with it everything before."""
        core = self.core
        if core is None or self._claimed is not None or core.epoch_start_offset is None:
            return
        if core.high_watermark > core.epoch_start_offset:
            epoch = self._claimed = core.epoch
            self._delivery.tell(lambda listener: listener.on_claimed(epoch))
            self._delivery.tell(lambda listener: self._driver.wake())  # the voter check may wait


def timing_of(config: QuorumConfig) -> Timing:
    return Timing(
        election_timeout_s=config.election_timeout_ms / 1000,
        fetch_timeout_s=config.fetch_timeout_ms / 1000,
        election_backoff_max_s=config.election_backoff_max_ms / 1000,
        fetch_max_wait_ms=config.fetch_max_wait_ms,
        fetch_max_bytes=config.fetch_max_bytes,
    )


def _ignore_time(seconds: float) -> None:
    """Nobody measures."""
