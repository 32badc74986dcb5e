"""The compaction of this broker's logs (``cleanup.policy=compact``), one log after the other.

Leaders and followers compact their own logs, each at its own time, so replicas may hold different
records below the clean end. What a reader knows at the end is the same on all.

Nothing at or above the high watermark is compacted, nor above the checkpointed recovery point: the
leader epochs below that are in their file, while recovery makes later ones from the batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from broker.replication.replica import Replica, ReplicaState
from broker.replication.replicas import Replicas
from runtime.config.node import NodeConfig
from stele.ids import PartitionId
from storage.compaction.round import AbandonedError, Limits, compact_log
from storage.compaction.survey import Survey, survey
from storage.compaction.work import UncleanableError
from storage.directory import LogDirectory
from storage.errors import CorruptLogError, StorageError
from storage.log import PartitionLog
from world.disk import Disk

logger = logging.getLogger(__name__)


class _Candidate(NamedTuple):
    """A log that may be compacted now."""

    replica: Replica
    log: PartitionLog
    found: Survey

    @property
    def is_due(self) -> bool:
        found = self.found
        if not found.dirty_bytes:
            return False
        return found.is_overdue or found.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


class _Failure(NamedTuple):
    """A compaction that failed, and what the log was like then."""

    directory: LogDirectory
    truncation_generation: int
    first_segment: int

    @classmethod
    def of(cls, log: PartitionLog, directory: LogDirectory) -> _Failure:
        return cls(directory, log.truncation_generation, log.segments.at(0).base_offset)

    def would_come_again(self, log: PartitionLog) -> bool:
        """As long as no segment was removed. Else what cannot be compacted may be gone."""
        return log.offline is None and self == _Failure.of(log, self.directory)


class Cleaner:
    """Compacts the log with the greatest dirty ratio, then looks again. Waits
    ``log.cleaner.backoff.ms`` when none is due, and after an error."""

    def __init__(
        self,
        replicas: Replicas,
        disk: Disk,
        config: NodeConfig,
        is_paused: Callable[[PartitionId], bool],
    ) -> None:
        """``is_paused``: whether a replica is not to be compacted now, because another copy of it
        is being made. The copy would get a record and not the tombstone that is compacted away with
        it."""
        self.rounds = 0
        """Compactions that came to their end."""
        self.recopy_percent = 0.0
        """The percentage of the read bytes that the last compaction wrote."""
        self.max_dirty_percent = 0.0
        """The greatest dirty ratio when the cleaner looked last."""
        self._replicas = replicas
        self._disk = disk
        self._is_enabled = config.log_cleaner_enable
        self.configure(config)
        self._is_paused = is_paused
        self._at_work: tuple[PartitionLog, asyncio.Future[None]] | None = None
        # Logs whose compaction failed. A log that is begun anew is another one.
        self._uncleanable: dict[PartitionLog, _Failure] = {}
        # Logs whose compaction failed for now. They wait until no other is due, and a backoff.
        self._set_back: set[PartitionLog] = set()
        self._task: asyncio.Task[None] | None = None

    def configure(self, config: NodeConfig) -> None:
        """Go by these settings from the next wait and the next compaction on. Whether there is a
        cleaner is decided at the start."""
        self._backoff_s = config.log_cleaner_backoff_ms / 1000
        self._limits = Limits(
            config.log_cleaner_dedupe_buffer_size,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_max_bytes_per_second,
        )

    def start(self) -> None:
        if self._is_enabled:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="cleaner")

    async def stop(self) -> None:
        """A compaction under way is given up. What it has put in place stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def leave(self, log: PartitionLog) -> None:
        """Return when no compaction of this log is under way."""
        if self._at_work is not None and self._at_work[0] is log:
            await asyncio.shield(self._at_work[1])

    def uncleanable_in(self, directory: LogDirectory) -> int:
        """How many logs of a directory are not compacted any more."""
        return sum(
            each.directory is directory and each.would_come_again(log)
            for log, each in self._uncleanable.items()
        )

    async def _run(self) -> None:
        while True:
            try:
                if await self.clean_dirtiest():
                    continue
            except Exception:
                # The next look may do better, and nothing else depends on this one.
                logger.exception("cleaner")
            await asyncio.sleep(self._backoff_s)

    async def clean_dirtiest(self) -> bool:
        """Compact the log that is dirtiest. False if none is due, or only some that failed for
        now."""
        candidates = await self._survey_all()
        ratios = [each.found.dirty_ratio for each in candidates]
        self.max_dirty_percent = 100 * max(ratios, default=0.0)
        due = [each for each in candidates if each.is_due and each.log not in self._set_back]
        if not due:
            self._set_back.clear()
            return False
        await self._clean(max(due, key=lambda each: each.found.dirty_ratio))
        return True

    async def _survey_all(self) -> list[_Candidate]:
        self._uncleanable = {
            log: each for log, each in self._uncleanable.items() if each.would_come_again(log)
        }
        now_ms = self._replicas.clock.time_ms()
        candidates = []
        for replica in list(self._replicas):
            if replica.state is not ReplicaState.ONLINE or not replica.log.config.compact:
                continue
            log = replica.log
            if log in self._uncleanable or self._is_paused(replica.id):
                continue
            directory = replica.directory
            limit = min(replica.machine.last_stable_offset, directory.checkpointed(log)[0])
            try:
                found = await survey(log, directory.clean_end(log), limit, now_ms)
            except (StorageError, OSError) as error:
                logger.warning("%s: the cleaner cannot look at it for now: %s", log.name, error)
                continue
            except Exception as error:
                self._give_up(replica, log, error)
                continue
            if replica.uses(log):
                candidates.append(_Candidate(replica, log, found))
        return candidates

    async def _clean(self, candidate: _Candidate) -> None:
        replica, log = candidate.replica, candidate.log
        if not replica.uses(log) or self._is_paused(replica.id):
            return  # it was removed while others were looked at, or is to be moved
        self._at_work = log, asyncio.get_running_loop().create_future()
        try:
            await self._compact(candidate)
        finally:
            self._at_work[1].set_result(None)
            self._at_work = None

    async def _compact(self, candidate: _Candidate) -> None:
        replica, log, found = candidate
        generation = log.truncation_generation
        now_ms = self._replicas.clock.time_ms()
        size = log.size_bytes
        try:
            finished = await compact_log(
                log, self._disk, found, self._limits, now_ms, self._noting_dropped(replica, log)
            )
            await replica.directory.checkpoint_clean_end(log, finished.clean_end, generation)
        except AbandonedError:
            logger.info("%s: its compaction was given up, since the log has changed", log.name)
            self._set_back.add(log)
            return
        except StorageError as error:
            logger.error("%s: its compaction failed for now: %s", log.name, error.message)
            self._set_back.add(log)
            return
        except Exception as error:
            self._give_up(replica, log, error)
            return
        self.rounds += 1
        if finished.bytes_read:
            self.recopy_percent = 100 * finished.bytes_written / finished.bytes_read
        logger.info(
            "%s: compacted up to offset %d, from %d to %d bytes",
            log.name,
            finished.clean_end,
            size,
            log.size_bytes,
        )

    def _noting_dropped(
        self, replica: Replica, log: PartitionLog
    ) -> Callable[[int], Awaitable[None]]:
        """Before tombstones go: which replicas must begin anew to read the log without them."""

        async def note(dropped_end: int) -> None:
            log.dropped_end = max(log.dropped_end, dropped_end)
            replica.machine.tombstones_dropped(
                dropped_end, self._replicas.clock.time_ms(), log.config.delete_retention_ms
            )
            await replica.directory.persist_start_offsets()

        return note

    def _give_up(self, replica: Replica, log: PartitionLog, error: Exception) -> None:
        """The error would come again. So the others go on without this log."""
        is_expected = isinstance(error, UncleanableError | CorruptLogError)
        logger.error(
            "%s cannot be compacted, and grows from now on: %s",
            log.name,
            error,
            exc_info=None if is_expected else error,
        )
        if replica.uses(log):
            self._uncleanable[log] = _Failure.of(log, replica.directory)
