"""One partition's log: segments, leader epochs, producer state, and what of it is durable.

Everything is synchronous and runs on the event loop. What would wait for the disk does not happen
here: a sync is begun and finished by the group commit, and a read that would wait says what to
warm. The exceptions are rare: opening, truncating, and the sync of a full segment.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
from collections.abc import Callable, Iterator

from stele.errors import ApiError, ErrorCode, SteleError
from stele.wire.batch import NO_TIMESTAMP, BatchHeader, batches, stamp
from stele.world import Buffer, Clock
from storage import time_search
from storage.checkpoints import LEADER_EPOCH_FILE, TopicPartition, encode_epochs
from storage.config import LogConfig
from storage.durability import Durability
from storage.errors import (
    StorageError,
    UnreadableLogError,
    is_device_failure,
    is_disk_full,
    is_unreadable,
)
from storage.leader_epochs import EpochEndOffset, LeaderEpochs
from storage.log_types import (
    AppendResult,
    LogOwner,
    ReadResult,
    SyncTicket,
    TimestampOffset,
)
from storage.producer_files import ProducerFiles
from storage.producer_state import ProducerStates
from storage.recovery import (
    RecoveredSegments,
    RecoveryRequest,
    recover_epochs,
    recover_producers,
    recover_segments,
    replay,
)
from storage.reindex import reindex
from storage.retiring import retire_dead_segments
from storage.runs import runs_of
from storage.segment import ColdRange
from storage.segments import Segments
from storage.snapshots import (
    drop_snapshots_above,
    drop_snapshots_below,
    newest_snapshot,
)
from storage.steps import Steps, finish
from world.disk import Disk

logger = logging.getLogger(__name__)


class PartitionLog:
    """A partition's records on this node's disk. See ``open``."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        clock: Clock,
        recovered: RecoveredSegments,
        *,
        key: TopicPartition,
        topic_id: bytes | None,
        owner: LogOwner[PartitionLog] | None,
    ) -> None:
        """Use ``open``."""
        self.directory = directory
        self.key = key
        """Its name, which a later log may bear, too: two logs are the same only if they are one
        object."""
        self.topic_id = topic_id
        self.config = config
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.start_offset = recovered.segments[0].base_offset
        """Records below do not count any more; their segments may still be there."""
        self.end_offset = recovered.segments[-1].end_offset
        """Offset of the next record. The last segment's end offset, always."""
        self.recovered_high_watermark = 0
        """As the last checkpoint said, within the log: whoever takes the log up begins with it."""
        self.ask_high_watermark: Callable[[], int] = lambda: self.recovered_high_watermark
        """Whoever takes the log up says how: the high watermark is theirs, the log keeps none. It
        is asked for by checkpoints, which claim nothing above it."""
        self.truncated_bytes = recovered.truncated_bytes
        """What recovery took off as a torn write."""
        self.offline: OSError | None = None
        """Why the log takes and gives nothing any more."""
        self.on_durable: Callable[[PartitionLog], None] | None = None
        """Called on the event loop after a sync raised ``durable_offset``."""
        self._disk = disk
        self._clock = clock
        self._owner = owner
        self.segments = Segments(disk, directory, recovered.segments)
        self._durability = Durability(disk, self.end_offset, self._tell_dirty, self._tell_unflushed)
        self._producer_files = ProducerFiles(disk, directory)
        self.reindexing = asyncio.Lock()
        """Held while a segment's indexes are made anew: once is enough."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        clock: Clock,
        *,
        key: TopicPartition,
        start_offset: int = 0,
        recovery_point: int = 0,
        high_watermark_checkpoint: int = 0,
        clean_shutdown: bool = False,
        topic_id: bytes | None = None,
        owner: LogOwner[PartitionLog] | None = None,
    ) -> PartitionLog:
        """Open the log in ``directory``, which is made if absent, and recover it.

        Waits for the device. Otherwise as ``opening``.
        """
        return finish(
            disk,
            cls.opening(
                disk,
                directory,
                config,
                clock,
                key=key,
                start_offset=start_offset,
                recovery_point=recovery_point,
                high_watermark_checkpoint=high_watermark_checkpoint,
                clean_shutdown=clean_shutdown,
                topic_id=topic_id,
                owner=owner,
            ),
        )

    @classmethod
    def opening(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        clock: Clock,
        *,
        key: TopicPartition,
        start_offset: int = 0,
        recovery_point: int = 0,
        high_watermark_checkpoint: int = 0,
        clean_shutdown: bool = False,
        topic_id: bytes | None = None,
        owner: LogOwner[PartitionLog] | None = None,
    ) -> Steps[PartitionLog]:
        """As ``open``, in steps (``storage.steps``).

        The three offsets are those of the checkpoint files, 0 where they name none. After an
        unclean shutdown everything from the recovery point's segment on is checked and synced.
        After a clean one nothing is written that the next opening has to know of.
        Raises CorruptLogError, LogDirectoryError, OSError.
        """
        is_new = not disk.exists(directory)
        disk.make_directory(directory)
        request = RecoveryRequest(
            disk,
            directory,
            start_offset=start_offset,
            recovery_point=recovery_point,
            high_watermark=high_watermark_checkpoint,
            clean_shutdown=clean_shutdown,
            index_interval_bytes=config.index_interval_bytes,
            now_ms=clock.time_ms(),
        )
        recovered = yield from recover_segments(request)
        log = cls(
            disk, directory, config, clock, recovered, key=key, topic_id=topic_id, owner=owner
        )
        try:
            yield from log._recover_state(
                request._replace(start_offset=max(log.start_offset, start_offset)), recovered
            )
        except BaseException:
            log.close()
            raise
        if is_new or log.end_offset == log.segments.bases[0]:
            # The entries of directory and segment file become durable with the first group.
            parent = directory.rpartition("/")[0]
            log.require_synced(parent, directory, log.segments.active.path)
        return log

    def _recover_state(self, request: RecoveryRequest, recovered: RecoveredSegments) -> Steps[None]:
        self.epochs = yield from recover_epochs(request, recovered)
        # Epochs begin with the log. Theirs is the later start where a crash came between their
        # file and the checkpoint of the starts.
        self.start_offset = max(request.start_offset, self.epochs.start_offset)
        self.recovered_high_watermark = min(
            max(request.high_watermark, self.start_offset), self.end_offset
        )
        request = request._replace(start_offset=self.start_offset)
        self.producers, replayed = yield from recover_producers(request, recovered)
        self._producer_files = ProducerFiles(self._disk, self.directory, replayed)
        if not request.clean_shutdown:
            self._ease_recovery()

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, {self.start_offset}..{self.end_offset})"

    # ----------------------------------------------------------------------------- facts

    @property
    def name(self) -> str:
        """``<topic>-<partition>``."""
        return str(self.key)

    @property
    def synced_offset(self) -> int:
        """Everything below is on disk."""
        return self._durability.synced_offset

    @property
    def durable_offset(self) -> int:
        """Everything below may be acknowledged."""
        return self._durability.durable_offset

    @property
    def truncation_generation(self) -> int:
        """Rises with every truncation. A completion that was begun under another is stale."""
        return self._durability.generation

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def segment_bases(self) -> list[int]:
        """Base offsets of the segments, rising."""
        return list(self.segments.bases)

    @property
    def latest_epoch(self) -> int:
        """Leader epoch of the last batch, or one assigned since; -1 if none."""
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The greatest epoch not above ``epoch`` and where it ends (KIP-320); -1, -1: unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def configure(self, config: LogConfig) -> None:
        """Take a changed topic configuration; what is there stays as it is."""
        self.config = config
        if config.strict_flush and self.synced_offset < self.end_offset:
            self._durability.mark_dirty()

    # ----------------------------------------------------------------------------- append

    def assign_leader_epoch(self, epoch: int) -> None:
        """This node begins to lead ``epoch``, which starts at the log's end."""
        self.epochs.assign(epoch, self.end_offset)

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        check_sequence: bool = True,
    ) -> AppendResult:
        """Give one validated batch its offsets and append it; its bytes are stamped in place.

        ``header`` is the batch's own, its CRC checked (``stele.wire.batch.validate_produced``).
        A batch that a producer repeats is answered with its original place. Raises ApiError:
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR; then nothing
        was appended.
        """
        self._check_online()
        if leader_epoch < self.epochs.latest_epoch:
            raise ValueError(f"epoch {leader_epoch} after {self.epochs.latest_epoch} in {self}")
        config = self.config
        if header.producer_id >= 0 and check_sequence:
            original = self.producers.check(header)
            if original is not None:
                time_ms = original.append_time_ms if config.log_append_time else NO_TIMESTAMP
                return AppendResult(original.base_offset, original.last_offset, time_ms, True)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        append_time_ms = NO_TIMESTAMP
        if config.log_append_time:
            append_time_ms = now_ms
            header = header._replace(max_timestamp_ms=now_ms)
        stamp(
            batch,
            0,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            log_append_time_ms=now_ms if config.log_append_time else None,
        )
        size, newest_ms = header.size_bytes, header.max_timestamp_ms
        if self.segments.active.must_roll(size, last_offset, newest_ms, config, now_ms):
            self._roll()
        segment = self.segments.active
        position = self._write(batch)
        segment.note(last_offset, newest_ms, position, size, config.index_interval_bytes)
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self.producers.update(header, base_offset, now_ms)
        self._advance(last_offset + 1, 1, size)
        return AppendResult(base_offset, last_offset, append_time_ms)

    def append_as_follower(self, data: Buffer, *, verify_crc: bool = True) -> AppendResult:
        """Append the whole batches of ``data``, which carry offsets and epochs already.

        Also how a Raft leader writes its own. A part of a batch at the end is left out. Raises
        OutOfOrderOffsetsError, CorruptBatchError (CORRUPT_MESSAGE) with nothing of the faulty
        batch nor of those behind it appended, StorageError.
        """
        self._check_online()
        first_offset = self.end_offset
        # An epoch that this replica led and wrote nothing in. What the present leader has here may
        # be of an earlier one: it was not committed then, and nobody has cut it since.
        self.epochs.truncate_from(first_offset)
        view = memoryview(data)
        for run in runs_of(view, self, verify_crc=verify_crc, now_ms=self._clock.time_ms()):
            if run.roll_first:
                self._roll()
            self._append_run(view, run.batches)
        return AppendResult(first_offset, self.end_offset - 1)

    def _append_run(self, view: memoryview, run: list[tuple[int, BatchHeader]]) -> None:
        segment = self.segments.active
        start = run[0][0]
        end = run[-1][0] + run[-1][1].size_bytes
        offset = self._write(view[start:end]) - start
        interval = self.config.index_interval_bytes
        now_ms = self._clock.time_ms()
        for at, header in run:
            segment.note(
                header.last_offset,
                header.max_timestamp_ms,
                offset + at,
                header.size_bytes,
                interval,
            )
            if header.leader_epoch != self.epochs.latest_epoch:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self.producers.update(header, header.base_offset, now_ms)
        self._advance(run[-1][1].next_offset, len(run), end - start)

    def _write(self, data: Buffer) -> int:
        """Append to the active segment's file; return the position. Raises StorageError."""
        try:
            return self.segments.active.write([data])
        except OSError as error:
            if not self.segments.active.intact:
                raise self._fail(error) from error
            if is_disk_full(error):
                self._tell_full(len(data))
                raise StorageError(
                    f"{self.directory}: {error.strerror}; nothing was written; free space or "
                    "lower retention.ms or retention.bytes"
                ) from error
            raise self._refusal(error) from error

    def _advance(self, end_offset: int, batch_count: int, size: int) -> None:
        records = end_offset - self.end_offset
        self.end_offset = end_offset
        if self._producer_files.appended(batch_count, size):
            self._ease_recovery()
        self._durability.appended(records, end_offset, self.config)

    def _ease_recovery(self) -> None:
        """Write producer state and indexes every so often, so that neither a truncation nor a
        recovery has far to go."""
        active = self.segments.active
        try:
            path = self._producer_files.save_if_due(
                self.end_offset, self.producers, self.segments.bases
            )
            if path is None:
                return
            active.flush_indexes()
        except OSError as error:
            # The log tells the same, only more slowly.
            logger.warning("%s: index or producer snapshot not written: %s", active.path, error)
            return
        if self.config.strict_flush:
            self.require_synced(self.directory, path, *active.index_paths())

    # ----------------------------------------------------------------------------- sync

    def _tell_dirty(self) -> None:
        if self._owner is not None:
            self._owner.dirty(self)

    def _tell_unflushed(self) -> None:
        if self._owner is not None:
            self._owner.unflushed(self)

    @property
    def is_flushed(self) -> bool:
        """Whether a sync of all that was written has at least begun."""
        return self._durability.is_flushed

    def ask_for_sync(self) -> None:
        """Let the next group hold what was written, though ``flush.messages`` can wait."""
        self._durability.mark_dirty()

    def require_synced(self, *paths: str) -> None:
        """Nothing appended from now on counts as durable before these are on disk too."""
        self._durability.require(*paths)

    def begin_sync(self) -> SyncTicket:
        """A group begins: what of this log goes into it."""
        return self._durability.begin(self.segments.active.path, self.end_offset)

    def finish_sync(self, ticket: SyncTicket) -> None:
        """The group is on disk. After a truncation since, it says nothing about offsets."""
        if self.offline is not None:
            return
        if self._durability.finish(ticket) and self.on_durable is not None:
            self.on_durable(self)

    def sync_now(self) -> None:
        """Sync everything, waiting for the device. For tests and tools without an owner."""
        ticket = self.begin_sync()
        for path in ticket.paths:
            self._disk.sync_now(path)
        self.finish_sync(ticket)

    def go_offline(self, error: OSError) -> None:
        """Take and give nothing any more."""
        if self.offline is None:
            self.offline = error
            self.segments.close()

    def _fail(self, error: OSError) -> StorageError:
        """Go offline, tell the owner, and return what to raise: the device failed, or something was
        done by half, which recovery sets right at the next start."""
        logger.error("%s fails: %s", self.directory, error)
        self.go_offline(error)
        if self._owner is not None:
            self._owner.failed(self, error)
        return StorageError(f"{self.directory}: {error}")

    def _refusal(self, error: OSError) -> StorageError:
        """What to raise when nothing was done: the log goes on, unless the device failed."""
        if is_device_failure(error):
            return self._fail(error)
        return StorageError(f"{self.directory}: {error}; nothing was changed")

    def _unread(self, error: OSError, path: str, position: int, offset: int) -> SteleError:
        """What to raise when a read failed."""
        if is_unreadable(error):
            reason = f"it cannot be read: {error.strerror or error}"
            return UnreadableLogError(path, position=position, offset=offset, reason=reason)
        return self._refusal(error)

    def _tell_full(self, size_bytes: int) -> None:
        if self._owner is not None:
            self._owner.refused(self, size_bytes)

    def _check_online(self) -> None:
        if self.offline is not None:
            raise StorageError(f"{self.directory} is offline: {self.offline}")

    # ----------------------------------------------------------------------------- roll

    def _roll(self) -> None:
        """Seal the active segment and begin one at the log's end."""
        old = self.segments.active
        if self.config.strict_flush:
            # Else a crash could tear this one's tail and leave whole batches in the next, which
            # would pass for corruption.
            try:
                self._disk.sync_now(old.path)
            except OSError as error:
                raise self._refusal(error) from error
        try:
            self.segments.begin(self.end_offset, created_ms=self._clock.time_ms())
        except OSError as error:
            if is_disk_full(error):
                self._tell_full(0)
            raise self._refusal(error) from error
        try:
            old.seal()
            self._write_snapshot()
        except OSError as error:
            # Both can be made anew from the log.
            logger.warning("%s: index or producer snapshot not written: %s", old.path, error)
        self.require_synced(self.directory, old.path, *old.index_paths())

    def _write_snapshot(self) -> None:
        """Producer state as of the log's end, for recovery to begin from."""
        self.require_synced(self._producer_files.write(self.end_offset, self.producers))

    # ----------------------------------------------------------------------------- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        limit_offset: int | None = None,
        min_one_batch: bool = True,
    ) -> ReadResult:
        """Whole batches of one segment, from the one that holds ``offset`` on.

        All stand below ``limit_offset`` (the log's end if None: high watermark, last stable
        offset) and take at most ``max_bytes`` together, but with ``min_one_batch`` the first may
        be larger. Raises ApiError (OFFSET_OUT_OF_RANGE outside start and end, KAFKA_STORAGE_ERROR),
        CorruptLogError; UnreadableLogError where the device does not give the bytes.
        """
        self._check_online()
        if not self.start_offset <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} holds {self.start_offset} to {self.end_offset}, not {offset}",
            )
        limit = self.end_offset if limit_offset is None else min(limit_offset, self.end_offset)
        if offset >= limit:
            return ReadResult(b"", offset)
        segment, position = self.segments.place_of(offset)
        try:
            found = segment.read(
                offset,
                max_bytes,
                limit_offset=limit,
                min_one_batch=min_one_batch,
                position=position,
            )
        except OSError as error:
            raise self._unread(error, segment.path, position or 0, offset) from error
        if isinstance(found, ColdRange):
            return ReadResult(b"", offset, found)
        self.segments.remember(segment, found)
        return ReadResult(found.data, found.next_offset)

    def readable_bytes(self, offset: int, limit_offset: int) -> int | None:
        """How many bytes ``read`` would give from ``offset`` on if it might give any number.

        None where more below ``limit_offset`` will never come into the same read, or the device
        would have to be waited for: a read then brings all there is. It looks at no more than the
        few headers between an index entry and each end. Raises as ``read`` does.
        """
        self._check_online()
        if offset >= limit_offset:
            return 0
        segment, position = self.segments.place_of(offset)
        if segment is not self.segments.active:
            return None
        try:
            first = segment.locate(offset) if position is None else position
            if limit_offset >= self.end_offset:
                last: int | ColdRange = segment.size
            else:
                last = segment.locate(limit_offset)
        except OSError as error:
            raise self._unread(error, segment.path, position or 0, offset) from error
        if isinstance(first, ColdRange) or isinstance(last, ColdRange):
            return None
        return last - first

    def batches_now(self, offset: int) -> Iterator[tuple[BatchHeader, Buffer]]:
        """Every batch from the one that holds ``offset`` on, waiting for the device: start-up."""
        while offset < self.end_offset:
            result = self.read(offset, 1 << 20)
            if result.cold is not None:
                self.segments.place_of(offset)[0].warm_now(result.cold)
                continue
            view = memoryview(result.data)
            for at, header in batches(view):
                yield header, view[at : at + header.size_bytes]
            offset = result.next_offset

    async def warm(self, cold: ColdRange) -> None:
        """Bring what a read missed into memory; then read again.

        Raises UnreadableLogError, StorageError. A segment that was deleted meanwhile is no error.
        """
        try:
            if cold.size == 0:
                await reindex(self, cold.path)
            else:
                await self._disk.warm(*cold)
        except FileNotFoundError as error:
            if self._lose_indexes(cold.path):
                return
            if self.offline is None and any(cold.path == each.path for each in self.segments):
                raise UnreadableLogError(
                    cold.path, position=cold.position, offset=-1, reason="it is gone"
                ) from error
        except OSError as error:
            if is_unreadable(error) and self._lose_indexes(cold.path):
                return
            raise self._unread(error, cold.path, cold.position, -1) from error

    def _lose_indexes(self, path: str) -> bool:
        """Whether ``path`` is that of an index: it will be made anew from the segment."""
        segment = next((each for each in self.segments if path in each.index_paths()), None)
        if segment is not None:
            segment.indexes_lost = True
        return segment is not None

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose time is at or after ``timestamp_ms``; None if there is none.

        May wait for the disk: check leadership again afterwards.
        """
        return await time_search.first_at_or_after(self, timestamp_ms)

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the greatest time (KIP-734), the first of several. May wait, too."""
        return await time_search.newest(self)

    # ----------------------------------------------------------------------------- truncate

    def truncate_to(self, offset: int) -> int:
        """Cut off the batch that holds ``offset`` and all behind it; return the new end.

        What is left is durable when it returns. Raises StorageError: the log is offline then, or
        nothing was cut; UnreadableLogError.
        """
        self._check_online()
        if offset >= self.end_offset:
            return self.end_offset
        if offset < self.segments.bases[0]:
            self.reset_to(offset)
            return self.end_offset
        generation = self.truncation_generation
        try:
            self._truncate_to(offset)
        except OSError as error:
            raise self._cut_failed(error, generation) from error
        return self.end_offset

    def _cut_failed(self, error: OSError, generation: int) -> SteleError:
        """What to raise. A cut that has begun, in a new generation, is ended by recovery only."""
        begun = generation != self.truncation_generation
        if is_unreadable(error):
            if begun:
                self.go_offline(error)
            return self._unread(error, self.directory, 0, self.end_offset)
        return self._fail(error) if begun else self._refusal(error)

    def _truncate_to(self, offset: int) -> None:
        keep = self.segments.index_of(offset) + 1
        segment = self.segments.at(keep - 1)
        position = segment.locate(offset, wait=True)
        if isinstance(position, ColdRange):
            raise segment.corrupt(position.position, "the file ends inside a batch", offset)
        if self._owner is not None:
            self._owner.lower_checkpoints(self, offset)
        is_announced = self.segments.announce_cut(keep)
        self._begin_cut()
        self._free(self.segments.drop_last(keep, is_announced=is_announced))
        segment.truncate(position)
        self._settle()

    def _begin_cut(self) -> None:
        self._durability.begin_cut()
        self.segments.forget_places()

    def _free(self, aside: list[str]) -> None:
        """The space of files that were set aside: a large one takes long to remove."""
        if self._owner is not None and aside:
            self._owner.set_aside(aside)
            return
        for path in aside:
            if self._disk.exists(path):
                self._disk.remove(path)

    def _settle(self) -> None:
        """After a cut: everything that is left is on disk, and the state is that of the end."""
        self.end_offset = self.segments.active.end_offset
        self.start_offset = min(self.start_offset, self.end_offset)
        self.epochs.truncate_from(self.end_offset)
        drop_snapshots_above(self._disk, self.directory, self.end_offset)
        self._durability.end_cut(self.end_offset)
        self._rebuild_producers()

    def _rebuild_producers(self) -> None:
        if len(self.producers) == 0:
            return  # none has written anything that counts, so none has in what is left
        self.producers, offset = newest_snapshot(self._disk, self.directory, self.end_offset)
        offset = max(offset, self.start_offset)
        take = functools.partial(self.producers.update_from, now_ms=self._clock.time_ms())
        replayed = finish(self._disk, replay(self.segments.all(), offset, take))
        self._producer_files = ProducerFiles(self._disk, self.directory, replayed)

    def reset_to(self, offset: int) -> None:
        """Delete everything; the log is empty and begins at ``offset``.

        Raises StorageError: the log is offline then, or nothing was deleted.
        """
        self._check_online()
        generation = self.truncation_generation
        try:
            if self._owner is not None:
                self._owner.lower_checkpoints(self, 0)
            is_announced = self.segments.announce_cut(0)
            self._begin_cut()
            self._free(self.segments.drop_last(0, is_announced=is_announced))
            drop_snapshots_above(self._disk, self.directory, -1)
            self.segments.begin(offset, created_ms=self._clock.time_ms())
            self.epochs.clear()
            self.start_offset = self.end_offset = offset
            self._disk.sync_now(self.directory)
            self._settle()
        except OSError as error:
            raise self._cut_failed(error, generation) from error

    # ----------------------------------------------------------------------------- retention

    def advance_start_offset(self, offset: int) -> None:
        """Records below ``offset`` are gone for readers; DeleteRecords, retention, a leader's.

        Their segments go with ``remove_dead_segments``, once the new start is checkpointed. Raises
        ApiError (OFFSET_OUT_OF_RANGE) above the log's end. Never moves back.
        """
        self._check_online()
        if offset > self.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} ends at {self.end_offset}, not {offset}",
            )
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.advance_start(offset)

    def remove_dead_segments(self, *, in_order: bool = False) -> int:
        """Delete segments that end at or below ``start_offset``; return how many.

        ``in_order`` syncs each removal before the next, for when the start offset could not be
        checkpointed: a crash must not leave a gap.
        """
        self._check_online()
        try:
            dead = self.segments.drop_below(self.start_offset, in_order=in_order)
            if dead:
                drop_snapshots_below(self._disk, self.directory, self.segments.bases[0])
        except OSError as error:
            raise self._refusal(error) from error
        return dead

    async def retire_dead_segments(self, *, in_order: bool = False) -> int:
        """As ``remove_dead_segments``, in slices; the event loop waits neither for the device nor
        while the space is freed. Raises StorageError."""
        self._check_online()
        try:
            return await retire_dead_segments(self, self._disk, in_order=in_order)
        except OSError as error:
            raise self._refusal(error) from error

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that were silent for ``producer.id.expiration.ms``."""
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # ----------------------------------------------------------------------------- end

    def checkpoint_epochs(self) -> tuple[str, bytes] | None:
        """The leader-epoch-checkpoint's path and new content; None if the file is right.

        To be replaced before a recovery point is written that covers it.
        """
        if not self.epochs.dirty:
            return None
        self.epochs.dirty = False
        return f"{self.directory}/{LEADER_EPOCH_FILE}", encode_epochs(self.epochs.entries)

    def prepare_clean_shutdown(self) -> None:
        """Write indexes and producer snapshot; the next group makes them durable."""
        self.segments.active.seal()
        self._write_snapshot()
        self.require_synced(self.directory, *self.segments.active.index_paths())

    def close(self) -> None:
        """Give back every handle; the log takes and gives nothing any more."""
        if self.offline is None:
            self.offline = OSError(errno.ESHUTDOWN, "it was closed")
        self.segments.close()


__all__ = ["AppendResult", "PartitionLog", "ReadResult", "SyncTicket"]
