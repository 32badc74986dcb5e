"""A broker's regular work on its replicas: ISR checks, checkpoints, retention."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from broker.membership.room import CHECK_INTERVAL_S, Rooms
from broker.replication.metadata import MetadataApplier
from broker.replication.replica import Replica, ReplicaState
from broker.replication.replicas import Replicas
from runtime.config.node import NodeConfig
from runtime.silence import STALL_S
from storage.directory import LogDirectory
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.retention import LOGS_PER_TURN, retained_from
from storage.turns import Slices

logger = logging.getLogger(__name__)

_ISR_CHECK_MAX_S = 1.0
"""At most so long after ``replica.lag.time.max.ms`` a member is proposed away."""


class Housekeeping:
    """Loops, each with its own interval."""

    def __init__(
        self,
        replicas: Replicas,
        config: NodeConfig,
        directories: Sequence[LogDirectory],
        applier: MetadataApplier,
        rooms: Rooms,
    ) -> None:
        self._replicas = replicas
        self._config = config
        self._directories = tuple(directories)
        self._applier = applier
        self._rooms = rooms
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        config = self._config
        isr_check_s = min(config.replica_lag_time_max_ms / 2000, _ISR_CHECK_MAX_S)
        checkpoint_s = config.replica_high_watermark_checkpoint_interval_ms / 1000
        flush_s = config.log_flush_scheduler_interval_ms / 1000
        retention_s = config.log_retention_check_interval_ms / 1000
        self._begin("isr-check", every_on_time(isr_check_s, self.check_isr))
        for name, interval_s, work in (
            ("checkpoints", checkpoint_s, self.checkpoint),
            ("flush", flush_s, self.flush_overdue),
            ("retention", retention_s, self.enforce_retention),
            ("room", CHECK_INTERVAL_S, self.check_room),
        ):
            self._begin(name, _every(interval_s, work))
        self._begin("deleted", _attempt(self.remove_deleted))

    def _begin(self, name: str, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def check_isr(self) -> None:
        """Tell the time to the machines that it may change."""
        now_ms = self._replicas.now_ms()
        unsettled = self._replicas.unsettled
        for partition in list(unsettled):
            replica = self._replicas.by_id.get(partition)
            if replica is None or replica.state is not ReplicaState.ONLINE:
                del unsettled[partition]  # nobody can tell who lags
                continue
            self._replicas.carry_out(replica, replica.machine.ticked(now_ms))
            if replica.machine.is_settled:
                del unsettled[partition]

    async def check_room(self) -> None:
        """Whether the disks have room."""
        self._rooms.check()

    async def checkpoint(self) -> None:
        """Write checkpoints of high watermarks, recovery points, starts and epochs; retry logs that
        failed for want of space."""
        for directory in self._online():
            await _attempt(directory.checkpoint)
            await _attempt(directory.free_set_aside)
        self._applier.retry_failed()

    async def flush_overdue(self) -> None:
        """Sync the logs whose ``flush.ms`` is over."""
        for directory in self._online():
            directory.flush_overdue()

    async def enforce_retention(self) -> None:
        """Delete whole segments below the last stable offset that are too old or too many."""
        for directory in self._online():
            await _attempt(functools.partial(self._retain_and_retire, directory))
        await self.remove_deleted()

    async def _retain_and_retire(self, directory: LogDirectory) -> None:
        await self._retain(directory)
        removed = await directory.retire_dead_segments()
        if removed:
            logger.info("%s: %d segments deleted by retention", directory.path, removed)

    async def _retain(self, directory: LogDirectory) -> None:
        """Move the starts of the replicas' logs by retention. Logs without a replica wait: only the
        metadata decide what may be deleted."""
        now_ms = self._replicas.clock.time_ms()
        slices = Slices(LOGS_PER_TURN)
        for replica in list(self._replicas):
            if replica.directory is directory and replica.state is ReplicaState.ONLINE:
                await _attempt(functools.partial(self._retain_replica, replica, now_ms))
                await slices.step()

    async def _retain_replica(self, replica: Replica, now_ms: int) -> None:
        log = replica.log
        start_offset = await retained_from(log, replica.machine.last_stable_offset, now_ms)
        if replica.uses(log):  # else it was removed meanwhile, or taken down
            replica.begin_at(start_offset)
            _leave_dead_segment(log)
            for _ in log.expiring_producers(now_ms):
                await asyncio.sleep(0)

    async def remove_deleted(self) -> None:
        """Free the space of deleted topics; at the start, of those that an earlier life left."""
        for directory in self._online():
            await _attempt(directory.remove_deleted)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.offline is None]


def _leave_dead_segment(log: PartitionLog) -> None:
    try:
        log.leave_dead_segment()
    except StorageError as error:
        # On a full disk other segments can still go, which makes room for it.
        logger.warning("%s; its last segment is not deleted yet", error)


async def _every(interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await _attempt(work)


async def every_on_time(
    interval_s: float,
    work: Callable[[], Awaitable[None]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """As ``_every``, for work that judges others by when they were heard. If this process stood
    still, what they have sent meanwhile is unread. So that round is left out, but never two in a
    row."""
    loop = asyncio.get_running_loop()
    left_out = False
    while True:
        due_at = loop.time() + interval_s
        await sleep(interval_s)
        left_out = not left_out and loop.time() - due_at > STALL_S
        if not left_out:
            await _attempt(work)


async def _attempt(work: Callable[[], Awaitable[None]]) -> None:
    """An error of one log, or of one directory, must not stop the work on the others."""
    try:
        await work()
    except (StorageError, OSError) as error:
        logger.error("housekeeping: %s", error)
    except Exception:
        # The next round may do better, and nothing else depends on this one.
        logger.exception("housekeeping")
