"""One log directory: its owner, its logs, its checkpoints and its group commit."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from stele.ids import TopicPartition
from stele.world import Clock
from storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    PARTITION_METADATA_FILE,
    MetaProperties,
    encode_clean_shutdown,
    encode_partition_metadata,
)
from storage.config import LogConfig
from storage.copies import Copies, LogsAndCopies
from storage.corrupt_logs import CorruptLogs
from storage.directory_loading import DirectoryLoading, DirectoryLogs
from storage.directory_names import CORRUPT_SUFFIX, DELETED_SUFFIX, unused_path
from storage.errors import (
    CorruptLogError,
    LogDirectoryError,
    StorageError,
    UnusableDirectoryError,
    is_device_failure,
    is_disk_full,
    words_of,
)
from storage.formatted import LOCK_FILE, make_within, read_formatted
from storage.group_commit import GroupCommit, Synced
from storage.incarnations import Incarnations
from storage.log import PartitionLog
from storage.offset_checkpoints import Claim, OffsetCheckpoints
from storage.opening import opening_log
from storage.retention import remove_dead
from storage.steps import Steps, finish, take_turns
from storage.unflushed_logs import UnflushedLogs
from world.disk import Disk

logger = logging.getLogger(__name__)


class LogDirectory:
    """The logs of one directory, made by ``claim``. Everything runs on the event loop."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        clock: Clock,
        config: LogConfig,
        properties: MetaProperties,
        release_lock: Callable[[], None],
    ) -> None:
        """Use ``claim``."""
        self.path = path
        self.properties = properties
        self.incarnations = Incarnations(disk, path)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._corrupt = CorruptLogs(disk, path)
        # files that truncations have renamed and that are not removed yet
        self._aside: list[str] = []
        # The topic ids of logs whose creation failed half way. ``create`` finishes them, ``delete``
        # sets them aside. None: a power loss came before the first sync of a log. It has no topic
        # id, and nothing in it was ever acknowledged.
        self.half_made: dict[TopicPartition, bytes | None] = {}
        self.offline: OSError | None = None
        self.on_offline: Callable[[LogDirectory], None] | None = None
        """Called once, when the device has failed (``storage.errors.Failure``)."""
        self.on_log_failed: Callable[[PartitionLog, OSError], None] | None = None
        """Called when a log goes offline and the directory does not."""
        self.on_full: Callable[[str, int], None] | None = None
        """Called with the path and the size in bytes of a write for which the disk has no room."""
        self._unflushed = UnflushedLogs(clock)
        self._disk = disk
        self._clock = clock
        self._config = config
        self._release_lock: Callable[[], None] | None = release_lock
        self._is_loaded = False
        self._commit = GroupCommit(disk, clock, self._on_failed_sync)
        copies: dict[TopicPartition, PartitionLog] = {}
        self._all = LogsAndCopies(self.logs, copies)
        self._checkpoints = OffsetCheckpoints(disk, path, self._all, self.corrupt)
        self.copies = Copies(
            disk,
            path,
            self._checkpoints,
            self._opening,
            lambda key, topic_id: self._set_aside(key, DELETED_SUFFIX, topic_id),
            self._refusal,
            self._commit.remove,
            self.logs,
            self.half_made,
            copies,
        )
        self._loading = DirectoryLoading(
            disk,
            path,
            clock,
            self._checkpoints,
            DirectoryLogs(self.logs, self._corrupt, self.half_made, self.copies.left),
            lambda partition, topic_id: self._opening(partition, config, topic_id),
        )

    def on_synced(self, observe: Callable[[float], None]) -> None:
        """``observe`` gets the seconds that each sync of this directory takes."""
        self._commit.on_synced = observe

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        clock: Clock,
        config: LogConfig | None = None,
        *,
        cluster_id: str | None = None,
        node_id: int | None = None,
    ) -> LogDirectory:
        """Claim a directory and recover all its logs now. This waits for the device.

        Raises as ``claim`` and ``load``.
        """
        directory = cls.claim(disk, path, clock, config, cluster_id=cluster_id, node_id=node_id)
        directory.load_now()
        return directory

    @classmethod
    def claim(
        cls,
        disk: Disk,
        path: str,
        clock: Clock,
        config: LogConfig | None = None,
        *,
        cluster_id: str | None = None,
        node_id: int | None = None,
    ) -> LogDirectory:
        """Lock a formatted directory. ``load`` opens its logs, and ``close`` releases the lock.

        ``config`` applies to all logs until ``PartitionLog.configure``. Raises LogDirectoryError,
        whose message says what to do, and UnusableDirectoryError if the disk does not let it.
        """
        properties = read_formatted(disk, path, cluster_id=cluster_id, node_id=node_id)
        try:
            release = disk.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise LogDirectoryError(
                f"{path} is in use by another process; stop that node first"
            ) from None
        except OSError as error:
            raise UnusableDirectoryError(
                f"{path} cannot be written: {words_of(error)}; check its owner and mode"
            ) from error
        return cls(disk, path, clock, config or LogConfig(), properties, release)

    def _give_back(self) -> None:
        for log in self.logs.values():
            log.close()
        self.copies.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._release_lock is not None:
            self._release_lock()
            self._release_lock = None

    # ----------------------------------------------------------------------------- load

    async def load(self) -> None:
        """Open and recover all logs in short turns of the event loop. To be called once.

        Corrupt logs do not stop it: they are in ``corrupt``. Raises LogDirectoryError, whose
        message says what to do. If it fails, is cancelled or the process ends, the next opening
        finds the directory as it was: the mark of a clean shutdown is removed only at the end.
        """
        with self._explained():
            await take_turns(self._disk, self.loading())
            if self.offline is not None:
                raise self.offline

    def load_now(self) -> None:
        """As ``load``, but waits for the device. If it fails, it releases the lock."""
        try:
            with self._explained():
                finish(self._disk, self.loading())
        except BaseException:
            self._give_back()
            raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogDirectoryError(
                f"{self.path} cannot be opened: {error}; check the disk, its owner and mode"
            ) from error

    @property
    def is_loaded(self) -> bool:
        """Whether all its logs are open."""
        return self._is_loaded

    @property
    def progress(self) -> str:
        """The progress of ``load`` as text for people."""
        return self._loading.progress

    @property
    def clean_shutdown(self) -> bool:
        """Whether the last process that used the directory ended with ``close``."""
        return self._loading.clean_shutdown

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of that process if it ended with ``close``, for the registration; else
        -1."""
        return self._loading.previous_broker_epoch

    def loading(self) -> Steps[None]:
        """The steps of ``load``, for callers that run them one by one. Raises OSError."""
        self.incarnations.read()
        yield from self._loading.steps()
        self._is_loaded = True

    def _opening(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: bytes | None,
        start_offset: int = 0,
    ) -> Steps[PartitionLog]:
        return opening_log(
            self._disk,
            f"{self.path}/{partition}",
            config,
            self._clock,
            key=partition,
            start_offset=max(start_offset, self._checkpoints.start_offsets.get(partition, 0)),
            recovery_point=self._checkpoints.recovery_points.get(partition, 0),
            high_watermark_checkpoint=self._checkpoints.high_watermarks.get(partition, 0),
            dropped_end=self._checkpoints.dropped_ends.get(partition, 0),
            clean_shutdown=self.clean_shutdown,
            topic_id=topic_id,
            owner=self,
        )

    def start(self) -> None:
        """Sync what opening has written. To be called once the event loop runs."""
        self._commit.start()

    # ----------------------------------------------------------------------------- logs

    @property
    def corrupt(self) -> Mapping[TopicPartition, CorruptLogError]:
        """The faults of corrupt logs: report each, then call ``discard_corrupt``."""
        return self._corrupt.errors

    @property
    def corrupt_topic_ids(self) -> Mapping[TopicPartition, bytes | None]:
        """The topic ids of the corrupt logs; None for a log that has lost its topic id."""
        return self._corrupt.topic_ids

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get(TopicPartition(topic, partition))

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None
    ) -> PartitionLog:
        """Make a partition's directory and empty log. The next sync of the log covers both.

        Raises StorageError, or ValueError if the log exists already.
        """
        key = TopicPartition(topic, partition)
        if key in self._all or key in self.corrupt:
            raise ValueError(f"{key} is there already")
        self._check_online()
        self.copies.clear(key)
        directory = f"{self.path}/{key}"
        if key in self.half_made and self.half_made[key] is None:
            self._set_aside(key, DELETED_SUFFIX, None)
            del self.half_made[key]
        try:
            # Checkpoints of an earlier log of that name must not apply to this one.
            self._checkpoints.lower(key, 0)
            make_within(self._disk, self.path, directory)
            file = self._disk.open(f"{directory}/{PARTITION_METADATA_FILE}", create=True)
            try:
                if file.size:
                    file.truncate(0)
                file.append([encode_partition_metadata(topic_id)])
            finally:
                file.close()
            log = finish(self._disk, self._opening(key, config or self._config, topic_id))
        except OSError as error:
            if self._disk.exists(directory):
                self.half_made[key] = topic_id
            if is_disk_full(error):
                self._tell_full(0)
            raise self._refusal(f"{directory} cannot be made", error) from error
        self.half_made.pop(key, None)
        self.logs[key] = log
        return log

    def name_corrupt(self, topic: str, partition: int, topic_id: bytes) -> None:
        """A corrupt log that has lost its topic id counts as the replica of this topic. This is not
        written down: with a topic id the next opening could take the log for a sound one."""
        self._corrupt.topic_ids[TopicPartition(topic, partition)] = topic_id

    def checkpointed(self, log: PartitionLog) -> tuple[int, int, int]:
        """A log's checkpointed recovery point, high watermark and start."""
        return self._checkpoints.of(log.key)

    def clean_end(self, log: PartitionLog) -> int:
        """The offset up to which a log is compacted, according to its checkpoint."""
        return self._checkpoints.clean_ends.get(log.key, 0)

    def holds(self, key: TopicPartition) -> bool:
        """Whether a log of that name is here, whether sound, corrupt or half made."""
        return key in self.logs or key in self.corrupt or key in self.half_made

    def topic_id(self, key: TopicPartition) -> bytes | None:
        """The topic id of a log that is here in any state; None if it is not known."""
        if key in self.corrupt:
            return self.corrupt_topic_ids[key]
        return self.logs[key].topic_id if key in self.logs else self.half_made[key]

    def delete(self, topic: str, partition: int) -> None:
        """Close a log and set its directory aside. ``remove_deleted`` frees the space.

        Raises StorageError: then nothing has changed, and it may be called again.
        """
        key = TopicPartition(topic, partition)
        if not self.holds(key):
            return
        log = self.logs.get(key)
        self._set_aside(key, DELETED_SUFFIX, log.topic_id if log else None)
        self.half_made.pop(key, None)
        self._corrupt.forget(key)
        self._checkpoints.changed(key)
        if log is not None:
            del self.logs[key]
            self._commit.remove(log)
            log.close()

    def discard_corrupt(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None
    ) -> PartitionLog:
        """Set a corrupt log's directory aside (``…-corrupt``) and begin an empty one.

        The controller must have taken the replica out of ISR and ELR before. Raises StorageError:
        then it may be called again, and goes on where it failed.
        """
        key = TopicPartition(topic, partition)
        if key in self.corrupt:
            self._set_aside(key, CORRUPT_SUFFIX, topic_id)
            self._corrupt.forget(key)
            self._checkpoints.changed(key)
        return self.create(topic, partition, topic_id, config)

    def mark_corrupt(self, topic: str, partition: int, error: CorruptLogError) -> None:
        """A log in use was found corrupt: close it, and hold it like those found at opening."""
        key = TopicPartition(topic, partition)
        log = self.logs.pop(key)
        self._commit.remove(log)
        log.close()
        self._corrupt.hold(key, error, log.topic_id)
        self._checkpoints.changed(key)

    def _set_aside(self, key: TopicPartition, suffix: str, topic_id: bytes | None) -> None:
        target = unused_path(self._disk, self.path, key, topic_id, suffix)
        try:
            # No sync: if a crash undoes the rename, the log is deleted or found corrupt again.
            self._disk.rename(f"{self.path}/{key}", target)
        except FileNotFoundError:
            logger.warning("%s/%s is gone: there is nothing to set aside", self.path, key)
        except OSError as error:
            raise self._refusal(f"{self.path}/{key} cannot be set aside", error) from error

    async def sync_entries(self) -> None:
        """Return when no name that was set aside can come back. Raises StorageError."""
        try:
            await self._disk.sync([self.path])
        except OSError as error:
            raise self._refusal(f"{self.path} cannot be synced", error) from error

    async def remove_deleted(self) -> None:
        """Remove the directories that ``delete`` set aside, in this process or an earlier one.
        Raises OSError."""
        names = [name for name in self._disk.list(self.path) if name.endswith(DELETED_SUFFIX)]
        await self._disk.discard([f"{self.path}/{name}" for name in names])

    # ----------------------------------------------------------------------------- owner of logs

    def dirty(self, log: PartitionLog) -> None:
        self._commit.add(log)

    def set_aside(self, paths: list[str]) -> None:
        self._aside += paths

    def unflushed(self, log: PartitionLog) -> None:
        self._unflushed.begin(log)

    def failed(self, log: PartitionLog, error: OSError) -> None:
        if is_device_failure(error):
            logger.error("%s fails under %s: %s", self.path, log.name, error)
            self._go_offline(error)
        elif self.on_log_failed is not None:
            self.on_log_failed(log, error)

    def refused(self, log: PartitionLog, size_bytes: int) -> None:
        self._tell_full(size_bytes)

    def _tell_full(self, size_bytes: int) -> None:
        if self.on_full is not None:
            self.on_full(self.path, size_bytes)

    def lower_checkpoints(self, log: PartitionLog, offset: int) -> None:
        self._checkpoints.lower(log.key, offset)

    # ----------------------------------------------------------------------------- sync

    def flush_overdue(self) -> None:
        """Sync the logs whose oldest unsynced bytes are ``flush.ms`` old. To be called
        regularly."""
        self._unflushed.ask()

    async def flush(self) -> None:
        """Return when everything written before the call is on disk. Raises StorageError."""
        await self._commit.flush()

    def synced_then(self, logs: Iterable[PartitionLog], synced: Synced) -> None:
        """See ``GroupCommit.synced_then``."""
        self._commit.synced_then(logs, synced)

    @property
    def sync_groups(self) -> int:
        """The number of groups that have reached the disk."""
        return self._commit.groups

    def _on_failed_sync(self, error: OSError) -> None:
        logger.error("%s: a sync failed, the directory is offline: %s", self.path, error)
        self._go_offline(error)

    def _go_offline(self, error: OSError) -> None:
        if self.offline is not None:
            return
        self.offline = error
        self._commit.fail(error)
        for log in self._all.values():
            log.go_offline(error)
        if self.on_offline is not None:
            self.on_offline(self)

    def _refusal(self, what: str, error: OSError) -> StorageError:
        """The error to raise. If the device failed or is gone, the directory goes offline."""
        if is_device_failure(error) or not self._disk.exists(self.path):
            logger.error("%s fails: %s: %s", self.path, what, error)
            self._go_offline(error)
        return StorageError(f"{what}: {words_of(error)}")

    def _check_online(self) -> None:
        if self.offline is not None:
            raise StorageError(f"{self.path} is offline: {self.offline}")

    # ----------------------------------------------------------------------------- checkpoints

    async def checkpoint(self) -> None:
        """Write the four offset checkpoints and the epoch files that changed.

        Both recovery point and high watermark are min(on disk, high watermark). So truncations stay
        above them, and a log that ends below its checkpointed high watermark must be corrupt.
        Raises StorageError: then the directory is offline, or it may be tried again.
        """
        self._check_online()
        points = await self._checkpoints.committed()
        try:
            await self._checkpoints.write(points, points)
        except OSError as error:
            raise self._refusal(f"{self.path}: a checkpoint failed", error) from error

    async def checkpoint_clean_end(self, log: PartitionLog, offset: int, generation: int) -> None:
        """The log is compacted up to ``offset``, if it was not truncated since ``generation``.
        Raises StorageError."""
        self._check_online()
        try:
            await self._checkpoints.write_clean_end(log, offset, generation)
        except OSError as error:
            raise self._refusal(f"{self.path}: a checkpoint failed", error) from error

    async def free_set_aside(self) -> None:
        """Remove the files that truncations have renamed. Those that a failure or a crash leaves
        are removed when their log is opened again. Raises OSError."""
        paths, self._aside = self._aside, []
        if paths:
            await self._disk.discard(paths)

    def durable_start_offset(self, log: PartitionLog) -> int:
        """The least start offset that the log may have after a power loss."""
        start = log.start_offset
        return min(start, self._checkpoints.durable_start(log.key)) if start else 0

    def durable_dropped_end(self, log: PartitionLog) -> int:
        """The least ``dropped_end`` that the log may know after a power loss."""
        return self._checkpoints.durable_dropped_end(log.key)

    async def persist_start_offsets(self) -> None:
        """Return when the current start offsets and dropped ends of all logs are on disk. Raises
        StorageError."""
        self._check_online()
        try:
            await self._checkpoints.write_starts()
        except OSError as error:
            raise self._refusal(f"{self.path}: a checkpoint failed", error) from error

    # ----------------------------------------------------------------------------- retention

    async def retire_dead_segments(self) -> int:
        """Delete segments below the start offsets of their logs. Returns how many. The start
        offsets are on disk before that, unless the disk is full. Raises StorageError: then the
        directory is offline.
        """
        self._check_online()
        # A log that has left a dead segment has written a snapshot of its producers.
        await self._commit.flush()
        try:
            await self.checkpoint()
        except StorageError as error:
            if self.offline is not None:
                raise
            logger.warning("%s; deleting old segments first", error)
            return await remove_dead(list(self.logs.values()), in_order=True)
        removed = await remove_dead(
            list(self.logs.values()),
            lambda log: log.start_offset <= self._checkpoints.durable_start(log.key),
        )
        self._check_online()
        return removed

    # ----------------------------------------------------------------------------- end

    async def abandon(self) -> None:
        """Release the directory after a failed start. It stays as clean as it was before."""
        await self.close(broker_epoch=self.previous_broker_epoch, is_reported=self.clean_shutdown)

    async def close(self, *, broker_epoch: int = -1, is_reported: bool = True) -> None:
        """Clean shutdown: sync everything, write all files, leave the mark, release the lock.

        ``is_reported`` is False if the controller does not know yet that an earlier process ended
        uncleanly and may have lost records. The mark would hide that from the next process, so none
        is left. If the directory is offline or not loaded, only the handles are closed.
        """
        try:
            if self._is_loaded:
                await self._write_all()
                if is_reported:
                    await self._mark_clean(broker_epoch)
        except (OSError, StorageError) as error:
            logger.error("%s: no clean shutdown: %s", self.path, error)
        finally:
            await self._commit.close()
            self._give_back()

    async def _write_all(self) -> None:
        for log in list(self.logs.values()):
            self._prepare(log)
        await self._commit.flush()
        await self._checkpoints.write(
            {log: Claim.of(log, log.synced_offset) for log in self.logs.values()},
            await self._checkpoints.committed(),
        )

    def _prepare(self, log: PartitionLog) -> None:
        if log.offline is not None:
            return
        try:
            log.prepare_clean_shutdown()
        except OSError:
            raise
        except Exception as error:
            log.fail(error)

    async def _mark_clean(self, broker_epoch: int) -> None:
        if not self._corrupt.all_are_noted or any(log.offline for log in self.logs.values()):
            return  # without the mark the next start recovers: it finds or repairs them
        await self._disk.replace_file(
            f"{self.path}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown(broker_epoch)
        )
