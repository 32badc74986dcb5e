"""Moves of this broker's replicas between its log directories (KIP-113).

A replica goes on in its directory while a copy of its log is filled in the other one
(``storage.copying``). When the copy is complete, and all but its last batches are on disk, the
replica changes to it within one turn of the event loop. At that time a restart would still find the
old log. So nothing more is acknowledged until the copy is on disk and marked there as the log
(``storage.copies``), and until the controller knows the new directory. Only then the old log is
deleted.

One log is copied at a time, in the order of the requests. A restart begins unfinished copies anew.
A move is forgotten when the replica is removed, or its log or its copy fails, with a line in the
broker's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.membership.room import Rooms
from broker.replication.assignments import DirectoryAssignments
from broker.replication.cleaner import Cleaner
from broker.replication.events import ReplicaEvents
from broker.replication.log_deletion import LogDeletion
from broker.replication.relaxed_flush import RelaxedFlush
from broker.replication.replica import Replica, ReplicaState
from broker.replication.replicas import Replicas
from broker.replication.unopened import UnopenedReplicas
from stele.errors import ErrorCode, SteleError
from stele.ids import PartitionId, TopicPartition
from stele.wire.batch import BatchError
from storage.cold_range import ColdRange
from storage.copying import SLICE_BYTES, Copying, CopyStep
from storage.directory import LogDirectory
from storage.errors import CorruptLogError, StorageError
from storage.log import PartitionLog

logger = logging.getLogger(__name__)

RESERVE_BYTES: Final = 16 << 20
"""A copy leaves so much of its disk free: a directory without room costs the broker its
leaderships."""

_LAST_SLICES: Final = 8
"""Slices in one turn once the copy has caught up: writers must not always be a slice ahead."""

_SHORT_S: Final = 0.000_1  # nobody waits for less

_RETRY_S: Final = 1.0


class Decision(enum.Enum):
    """What a request to move a hosted replica leads to."""

    NOTHING = "nothing"  # it is there, or on its way there
    CANCEL = "cancel"
    BEGIN = "begin"


def decide(wanted: str, present: str, target: str | None) -> Decision:
    """``wanted``, ``present``: the directories that are asked for and used. ``target``: that of the
    move under way; None: there is no move."""
    if wanted == present:
        return Decision.NOTHING if target is None else Decision.CANCEL
    return Decision.NOTHING if wanted == target else Decision.BEGIN


class FutureReplica(NamedTuple):
    """A copy under way, for administrators."""

    directory: LogDirectory
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int


class _Move:
    """One replica that is to go to another directory."""

    def __init__(self, replica: Replica, target: LogDirectory) -> None:
        self.replica = replica
        self.key = TopicPartition(replica.topic, replica.id.partition)
        self.source = replica.directory
        self.target = target
        self.log = replica.log
        self.copying: Copying | None = None

    @property
    def is_usable(self) -> bool:
        """Whether the replica still uses the log that is copied."""
        return self.replica.uses(self.log)

    @property
    def described(self) -> FutureReplica:
        log, copying = self.log, self.copying
        size = 0 if copying is None else copying.copy.size_bytes
        lag = log.end_offset - log.start_offset if copying is None else copying.lag
        return FutureReplica(self.target, *self.key, size, lag)


class DirectoryMoves:
    """All moves of one broker. What is asked here is answered at once."""

    def __init__(
        self,
        replicas: Replicas,
        directories: Mapping[LogDirectory, RelaxedFlush],
        unopened: UnopenedReplicas,
        rooms: Rooms,
        cleaner: Cleaner,
        deletion: LogDeletion,
        assignments: DirectoryAssignments,
        events: ReplicaEvents,
    ) -> None:
        self._replicas = replicas
        self._directories = directories
        self._unopened = unopened
        self._rooms = rooms
        self._cleaner = cleaner
        self._deletion = deletion
        self._assignments = assignments
        self._events = events
        self._rate_bytes_per_s = sys.maxsize
        self._news = asyncio.Event()  # what a copy waits for may be over before its time
        # In the order of the requests. The first is under way.
        self._moves: dict[PartitionId, _Move] = {}
        # Moves whose replicas use the copy already, and must not acknowledge more before it counts.
        self._settling: dict[PartitionId, tuple[_Move, asyncio.Task[None]]] = {}
        # Where replicas that are not here yet are to be made. Only of partitions that exist.
        self._wishes: dict[PartitionId, LogDirectory] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def set_rate(self, bytes_per_s: int) -> None:
        """The most that copies read: ``replica.alter.log.dirs.io.max.bytes.per.second``."""
        if bytes_per_s != self._rate_bytes_per_s:
            self._rate_bytes_per_s = bytes_per_s
            self._news.set()

    # ------------------------------------------------------------------------- requests

    def alter(self, name: TopicPartition, path: str) -> ErrorCode:
        """Let a replica be in the directory ``path``: move it there, or cancel its move away. One
        that is not here yet is made there when it comes, if this process still runs.

        The error: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR if the replica or any directory is
        offline, or there is no room; REPLICA_NOT_AVAILABLE for a replica that is not here;
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        target = next((each for each in self._directories if each.path == path), None)
        if target is None and path in self._unopened.paths:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if target.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        image = self._replicas.metadata.image
        topic = image.topic(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = PartitionId(topic.topic_id, name.partition)
        replica = self._replicas.by_id.get(partition)
        if partition in self._unopened:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if replica is None:
            self._wishes[partition] = target
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if replica.state is not ReplicaState.ONLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        move = self._moves.get(partition)
        match decide(path, replica.directory.path, None if move is None else move.target.path):
            case Decision.NOTHING:
                return ErrorCode.NONE
            case Decision.CANCEL:
                self._drop(partition, "it was cancelled")
                return ErrorCode.NONE
            case Decision.BEGIN:
                return self._begin(replica, target)

    def wish_of(self, partition: PartitionId) -> LogDirectory | None:
        """Where a replica that is about to be made was asked to be, if that directory is online."""
        wish = self._wishes.get(partition)
        return wish if wish is not None and wish.offline is None else None

    def forget_wish(self, partition: PartitionId) -> None:
        """The replica is here, or its topic was deleted."""
        self._wishes.pop(partition, None)

    def _begin(self, replica: Replica, target: LogDirectory) -> ErrorCode:
        failed = any(directory.offline is not None for directory in self._directories)
        if failed or self._unopened.paths:
            # As in Kafka. Nobody knows what is in that directory, and whether it comes back.
            return ErrorCode.KAFKA_STORAGE_ERROR
        needed = replica.log.size_bytes + RESERVE_BYTES
        if self._rooms.free_bytes(target.path) < needed:
            logger.error("%r is not moved to %s: it needs %d bytes", replica, target.path, needed)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._drop(replica.id, "it moves to another directory now")
        self._moves[replica.id] = _Move(replica, target)
        logger.info("%r is moved from %s to %s", replica, replica.directory.path, target.path)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="moves")
        return ErrorCode.NONE

    # ------------------------------------------------------------------------- questions

    def __len__(self) -> int:
        """How many replicas are to be in another directory."""
        return len(self._moves)

    def is_moving(self, partition: PartitionId) -> bool:
        """Whether a copy of the replica is under way or will be, or does not count yet."""
        return partition in self._moves or partition in self._settling

    def is_settling(self, partition: PartitionId) -> bool:
        """Whether the replica's old log still is the one that a restart would find."""
        return partition in self._settling

    def future_replicas(self) -> list[FutureReplica]:
        """The copies under way, and those that have not begun."""
        return [move.described for move in self._moves.values() if move.is_usable]

    # ------------------------------------------------------------------------- changes of replicas

    def resume(self) -> None:
        """The replicas of this broker are known. Begin the unfinished copies of an earlier process
        anew, and delete those that no move needs."""
        for directory in self._directories:
            for key, topic_id in sorted(directory.copies.left.items()):
                replica = None
                if topic_id is not None:  # of an earlier topic of the name there is no replica
                    replica = self._replicas.by_id.get(PartitionId(topic_id, key.partition))
                if replica is not None and replica.state is ReplicaState.ONLINE:
                    self._begin(replica, directory)
                if replica is None or not self.is_moving(replica.id):
                    _clear(directory, key)

    def taken_down(self, replica: Replica) -> None:
        """The replica's log cannot be used any more, or the replica is removed."""
        self._drop(replica.id, "its replica was taken down")
        settling = self._settling.get(replica.id)
        if settling is not None and replica.state is ReplicaState.REMOVED:
            self._delete_old(settling[0])  # else it would be there if the replica came back

    def _drop(self, partition: PartitionId, why: str) -> None:
        move = self._moves.pop(partition, None)
        if move is None:
            return
        logger.info("%s is not moved to %s: %s", move.key, move.target.path, why)
        self._news.set()
        self._drop_copy(move)

    def _drop_copy(self, move: _Move) -> None:
        move.copying = None
        try:
            move.target.copies.drop(move.key)
        except StorageError as error:
            logger.error("the copy of %s in %s is left: %s", move.key, move.target.path, error)
        self._directories[move.target].discard(*move.key)

    # ------------------------------------------------------------------------- the work

    async def stop(self) -> None:
        """Unfinished copies stay, and the next process begins them anew. A copy that its replica
        uses already is completed."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(task for _, task in list(self._settling.values())))

    async def _run(self) -> None:
        while self._moves:
            move = next(iter(self._moves.values()))
            try:
                await self._carry_out(move)
            except (SteleError, OSError) as error:
                logger.error("%s cannot be moved to %s: %s", move.key, move.target.path, error)
            except Exception:
                logger.exception("%s cannot be moved to %s", move.key, move.target.path)
            if self._moves.get(move.replica.id) is move:
                self._drop(move.replica.id, "its copy is not whole")
        self._task = None

    async def _carry_out(self, move: _Move) -> None:
        """Raises StorageError, SteleError: the replica stays where it is."""
        await self._cleaner.leave(move.log)
        await self._end_earlier(move)
        while self._is_wanted(move):
            log = move.log
            copy = await move.target.copies.begin(
                move.key, move.replica.id.topic_id, log.config, log.start_offset
            )
            if not self._is_wanted(move):
                self._drop_copy(move)
                return
            move.copying = Copying(move.log, copy)
            if await self._fill(move, move.copying):
                await self._switch(move, copy)
                return
            self._drop_copy(move)

    def _is_wanted(self, move: _Move) -> bool:
        return self._moves.get(move.replica.id) is move and move.is_usable

    async def _end_earlier(self, move: _Move) -> None:
        """Nothing of an earlier move of this replica can come back after that. Raises
        StorageError."""
        settling = self._settling.get(move.replica.id)
        if settling is not None:
            await asyncio.shield(settling[1])
        for directory in self._directories:
            if directory is not move.source:
                if move.key in directory.logs or move.key in directory.corrupt:
                    raise StorageError(f"{directory.path} holds an older log of the name")
                await directory.sync_entries()
        await move.source.copies.forget_copied(move.key)

    async def _fill(self, move: _Move, copying: Copying) -> bool:
        """Whether the copy is whole, in this turn of the event loop, and on disk but for its last
        batches; False: it has to begin anew, or is not wanted any more. Raises as
        ``Copying.advance``."""
        copy, target = copying.copy, move.target
        is_prepared, turn_bytes = False, 0
        while copy.offline is None:  # it is closed when the move is dropped
            step = copying.step
            if step is CopyStep.BEGIN_ANEW:
                return False
            if step is CopyStep.COMPLETE:
                if is_prepared and target.durable_start_offset(copy) == copy.start_offset:
                    return True
                await self._prepare(move, copy)
                is_prepared = True
                continue
            if self._rooms.free_bytes(target.path) < RESERVE_BYTES:
                raise StorageError(f"{target.path} has no more room for the copy")
            copied = self._advance(move, copying)
            if isinstance(copied, ColdRange):
                await move.log.warm(copied)
                continue
            turn_bytes += copied
            if turn_bytes >= SLICE_BYTES * (_LAST_SLICES if is_prepared else 1):
                await self._pace(turn_bytes)
                turn_bytes = 0
        return False

    async def _pace(self, size_bytes: int) -> None:
        delay_s = size_bytes / self._rate_bytes_per_s
        if delay_s < _SHORT_S:
            await asyncio.sleep(0)
            return
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._news.wait()

    def _advance(self, move: _Move, copying: Copying) -> int | ColdRange:
        try:
            return copying.advance()
        except CorruptLogError as error:
            self._events.corrupt(move.replica, move.log, error)
            raise
        except BatchError as error:
            end = copying.copy.end_offset
            corrupt = CorruptLogError(
                move.log.directory, position=0, offset=end, reason=error.message
            )
            self._events.corrupt(move.replica, move.log, corrupt)
            raise

    async def _prepare(self, move: _Move, copy: PartitionLog) -> None:
        """Raises StorageError."""
        self._announce_relaxed(move)
        await move.target.flush()
        await move.target.checkpoint()

    def _announce_relaxed(self, move: _Move) -> None:
        if not move.log.config.strict_flush:
            self._directories[move.target].add(*move.key)

    async def _switch(self, move: _Move, copy: PartitionLog) -> None:
        """Nothing was written since the copy was found to be whole. Raises StorageError: the
        replica stays where it is."""
        replica, log = move.replica, move.log
        self._announce_relaxed(move)
        copy.take_over(log)
        move.target.copies.put_in_place(move.key)
        log.on_durable = None
        log.transactions.on_ended = None
        replica.move_to(move.target, copy)
        self._replicas.listen(replica, copy)
        del self._moves[replica.id]
        task = asyncio.get_running_loop().create_task(self._settle(move, copy), name="settle-move")
        self._settling[replica.id] = move, task
        await asyncio.shield(task)

    async def _settle(self, move: _Move, copy: PartitionLog) -> None:
        generation, clean_end = copy.truncation_generation, move.source.clean_end(move.log)
        try:
            while not await self._settle_once(move, copy):
                await asyncio.sleep(_RETRY_S)
                if self._is_stopped or move.target.offline is not None:
                    return  # the old log is still there for the next process
            move.replica.settle()
            if not await self._assignments.told(move.replica) or move.target.offline is not None:
                return
        finally:
            del self._settling[move.replica.id]
        self._delete_old(move)
        copy.release()
        if not move.replica.uses(copy):
            return
        self._events.settled(move.replica)
        logger.info("%s was moved from %s to %s", move.key, move.source.path, move.target.path)
        if clean_end:
            try:
                await move.target.checkpoint_clean_end(copy, clean_end, generation)
            except StorageError as error:
                logger.warning("%s is compacted from its start: %s", move.key, error)

    async def _settle_once(self, move: _Move, copy: PartitionLog) -> bool:
        target = move.target
        try:
            await target.flush()
            await target.checkpoint()
            if target.logs.get(move.key) is copy or move.replica.state is ReplicaState.CORRUPT:
                await target.copies.settle(copy)
        except StorageError as error:
            logger.error("the copy of %s does not count yet: %s", move.key, error)
            return False
        return True

    def _delete_old(self, move: _Move) -> None:
        if move.source.logs.get(move.key) is move.log:
            self._deletion.delete(move.source, move.key)


def _clear(directory: LogDirectory, key: TopicPartition) -> None:
    try:
        directory.copies.clear(key)
    except StorageError as error:
        logger.error("what is left of a copy of %s in %s stays: %s", key, directory.path, error)
