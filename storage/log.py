"""One partition's log: segments, leader epochs, producer state, and how far it is durable.

Everything is synchronous and runs on the event loop, so it must not wait for the disk. The group
commit begins and finishes syncs. A read that would wait for cold bytes returns them as a
``ColdRange`` to warm first. A few rare operations do wait: opening, truncating, and the sync of a
full segment.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from typing import Final

from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.wire.batch import CONTROL, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader, stamp
from stele.wire.control_records import EndMarker
from stele.world import Buffer, Clock
from storage import time_search
from storage.availability import Availability
from storage.checkpoints import LEADER_EPOCH_FILE, encode_epochs
from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.durability import Durability
from storage.errors import StorageError, is_disk_full, is_unreadable
from storage.leader_epochs import EpochEndOffset, LeaderEpochs
from storage.log_types import (
    AppendResult,
    LogOwner,
    ReadResult,
    SyncTicket,
    TimestampOffset,
)
from storage.producer_files import ProducerFiles
from storage.producer_recovery import rebuild_producers
from storage.producer_state import ProducerStates
from storage.reading import LogReader
from storage.recovered import RecoveredLog
from storage.replay import end_marker_of
from storage.retiring import keep_producers, retire_dead_segments, snapshot_to_sync
from storage.rolling import must_roll
from storage.runs import Run, runs_of
from storage.segments import Segments
from storage.snapshots import drop_snapshots_above, drop_snapshots_below
from storage.steps import finish
from storage.transactions import LogTransactions
from storage.unowned import Unowned
from world.disk import Disk

logger = logging.getLogger(__name__)

_UNDOABLE: Final = 16
"""From so many changes of producers on, those below the high watermark are forgotten."""


class PartitionLog:
    """A partition's records on this node's disk."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        clock: Clock,
        recovered: RecoveredLog,
        *,
        key: TopicPartition,
        topic_id: bytes | None,
        owner: LogOwner[PartitionLog] | None,
        dropped_end: int = 0,
    ) -> None:
        """Made from what recovery found. See ``storage.opening``."""
        self.directory = directory
        self.name = str(key)
        """``<topic>-<partition>``."""
        self.key = key
        """A later log may have the same name: two logs are the same only if they are one object."""
        self.topic_id = topic_id
        self.config = config
        self.epochs = recovered.epochs
        self.producers = recovered.producers.states
        self.start_offset = recovered.start_offset
        """Records below are gone for readers. Their segments may still exist."""
        self.dropped_end = min(dropped_end, recovered.end_offset)
        """All tombstones and end markers that compaction has dropped from this log, or from the log
        that this one was filled from, are below. A replica that ends below may hold a record that
        such a tombstone deletes. It will never read the tombstone, so it must begin anew."""
        self.end_offset = recovered.end_offset
        """The log end offset: that of the next record. It is always the last segment's end
        offset."""
        self.recovered_high_watermark = recovered.high_watermark
        """The checkpointed high watermark, limited to this log. The log's user begins with it."""
        self.ask_high_watermark: Callable[[], int] = lambda: self.recovered_high_watermark
        """Set by the log's user, which owns the high watermark. Checkpoints call it, and claim no
        higher one."""
        self.truncated_bytes = recovered.truncated_bytes
        """The number of bytes that recovery truncated as a torn write."""
        self.on_durable: Callable[[PartitionLog], None] | None = None
        """Called on the event loop after a sync has raised ``durable_offset``."""
        self._disk = disk
        self._clock = clock
        told: LogOwner[PartitionLog] = Unowned(disk) if owner is None else owner
        self._owner = told
        self.segments = Segments(disk, directory, recovered.segments)
        self.availability = Availability(
            directory, self.segments.close, lambda error: told.failed(self, error)
        )
        self.durability = Durability(
            disk, self.end_offset, lambda: told.dirty(self), lambda: told.unflushed(self)
        )
        self.transactions = LogTransactions(self, disk, recovered.producers.undecided)
        self._producer_files = ProducerFiles(disk, directory, recovered.producers.replayed)
        self._reader = LogReader(self, disk)

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, {self.start_offset}..{self.end_offset})"

    # ----------------------------------------------------------------------------- facts

    @property
    def offline(self) -> OSError | None:
        """Why the log is offline. None while it is not."""
        return self.availability.offline

    @property
    def synced_offset(self) -> int:
        """Everything below is on disk."""
        return self.durability.synced_offset

    @property
    def durable_offset(self) -> int:
        """Everything below may be acknowledged."""
        return self.durability.durable_offset

    @property
    def truncation_generation(self) -> int:
        """Rises with each truncation. A read or sync that began in an earlier generation is
        stale."""
        return self.durability.generation

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def segment_bases(self) -> list[int]:
        """The base offsets of the segments, in rising order."""
        return list(self.segments.bases)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, or one assigned since then; -1 if there is none."""
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """As ``LeaderEpochs.end_offset_for`` (KIP-320)."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def configure(self, config: LogConfig) -> None:
        """Apply a changed configuration from now on. Existing segments stay as they are."""
        self.config = config
        if config.strict_flush and self.synced_offset < self.end_offset:
            self.durability.mark_dirty()

    # ----------------------------------------------------------------------------- append

    def assign_leader_epoch(self, epoch: int) -> None:
        """This node becomes the leader in ``epoch``, which begins at the log's end."""
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
        """Assign offsets to one validated batch and append it. Its bytes are stamped in place.

        ``header`` is the batch's header, its CRC checked (``stele.wire.batch.validate_produced``).
        If a producer repeats a batch, the result is its original place. Raises ApiError
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR; then nothing was
        appended.
        """
        self.availability.check()
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
        if must_roll(self, size, last_offset, newest_ms, now_ms):
            self._roll()
        segment = self.segments.active
        marker: EndMarker | None = None
        if header.attributes & CONTROL and header.producer_id >= 0:
            marker = end_marker_of(batch)
            position = self._write_marker(batch, header.producer_id, marker, base_offset)
        else:
            position = self._write(batch)
        try:
            segment.note(last_offset, newest_ms, position, size, config.index_interval_bytes)
            if leader_epoch != self.epochs.latest_epoch:
                self.epochs.assign(leader_epoch, base_offset)
            if header.producer_id >= 0:
                self._note_producer(header, marker, base_offset, now_ms)
            self._advance(last_offset + 1, 1, size)
        except Exception as error:
            raise self._append_failed(error) from error
        return AppendResult(base_offset, last_offset, append_time_ms)

    def append_as_follower(self, data: Buffer, *, verify_crc: bool = True) -> AppendResult:
        """Append the whole batches of ``data``, which have offsets and leader epochs already.

        A Raft leader also writes its own batches by this. A part of a batch at the end is left out.
        Raises OutOfOrderOffsetsError or CorruptBatchError (CORRUPT_MESSAGE): then the batches
        before the faulty one were appended. Raises StorageError.
        """
        self.availability.check()
        first_offset = self.end_offset
        # Drop an epoch at the log's end: this replica led it and wrote nothing. The current
        # leader's batches at this offset may be of an earlier epoch.
        self.epochs.truncate_from(first_offset)
        view = memoryview(data)
        for run in runs_of(view, self, verify_crc=verify_crc, now_ms=self._clock.time_ms()):
            if run.roll_first:
                self._roll()
            self._append_run(view, run)
        return AppendResult(first_offset, self.end_offset - 1)

    def _append_run(self, view: memoryview, whole: Run) -> None:
        segment = self.segments.active
        run, markers = whole.batches, whole.markers
        start = run[0][0]
        end = run[-1][0] + run[-1][1].size_bytes
        if len(run) == 1 and markers:
            first = run[0][1]
            marker = markers[start]
            position = self._write_marker(
                view[start:end], first.producer_id, marker, first.base_offset
            )
        else:
            position = self._write(view[start:end])
        offset = position - start
        interval = self.config.index_interval_bytes
        now_ms = self._clock.time_ms()
        try:
            for at, header in run:
                segment.note(
                    header.last_offset,
                    header.max_timestamp_ms,
                    offset + at,
                    header.size_bytes,
                    interval,
                )
                if header.leader_epoch != self.epochs.latest_epoch:
                    self.epochs.assign_from_batch(
                        header.leader_epoch, header.base_offset, self.start_offset
                    )
                if header.producer_id >= 0:
                    self._note_producer(header, markers.get(at), header.base_offset, now_ms)
            self._advance(run[-1][1].next_offset, len(run), end - start)
        except Exception as error:
            raise self._append_failed(error) from error

    def _note_producer(
        self, header: BatchHeader, marker: EndMarker | None, offset: int, now_ms: int
    ) -> None:
        """Note a batch of a producer, which is written at ``offset``."""
        if header.attributes & CONTROL:
            self.transactions.ended(header, marker, offset, now_ms)
            return
        self.producers.update(header, offset, now_ms)
        if header.attributes & TRANSACTIONAL:
            self.transactions.begun()

    def _append_failed(self, error: Exception) -> StorageError:
        """The error to raise when bytes are written that this log does not know. Recovery finds
        them, and makes a missing index entry anew."""
        if isinstance(error, OSError):
            return self.availability.failure(error)
        return self.availability.broken(error)

    def _write(self, data: Buffer) -> int:
        """Append to the active segment's file. Returns the position. Raises StorageError."""
        try:
            return self.segments.active.write([data])
        except OSError as error:
            if not self.segments.active.intact:
                raise self.availability.failure(error) from error
            raise self._write_refused(error, len(data)) from error

    def _write_refused(self, error: OSError, size_bytes: int) -> StorageError:
        """The error to raise for a write that has changed nothing."""
        if not is_disk_full(error):
            return self.availability.refusal(error)
        self._owner.refused(self, size_bytes)
        return StorageError(
            f"{self.directory}: {error.strerror}; nothing was written; free space or "
            "lower retention.ms or retention.bytes"
        )

    def _write_marker(
        self, data: Buffer, producer_id: int, marker: EndMarker | None, offset: int
    ) -> int:
        """As ``_write``, for a batch that ends a transaction. If it aborts one, the transaction
        index has it before the log does."""
        try:
            is_announced = self.transactions.announce(producer_id, marker, offset)
        except OSError as error:
            raise self._write_refused(error, len(data)) from error
        try:
            return self._write(data)
        except StorageError:
            if is_announced and self.offline is None:
                self._retract()
            raise

    def _retract(self) -> None:
        try:
            self.transactions.retract()
        except OSError as error:
            raise self.availability.failure(error) from error

    def _advance(self, end_offset: int, batch_count: int, size: int) -> None:
        records = end_offset - self.end_offset
        self.end_offset = end_offset
        if self.producers.undoable > _UNDOABLE:
            self.producers.settle(self.ask_high_watermark())
        if self._producer_files.appended(batch_count, size):
            self.ease_recovery()
        self.durability.appended(records, end_offset, self.config)

    def ease_recovery(self) -> None:
        """Write producer state and indexes every so often, so that truncations and recoveries have
        little to replay."""
        active = self.segments.active
        try:
            path = self._producer_files.save_if_due(
                self.end_offset, self.producers, self.segments.bases
            )
            if path is None:
                return
            active.flush_indexes()
        except OSError as error:
            # Recovery can rebuild both from the log, only more slowly.
            logger.warning("%s: index or producer snapshot not written: %s", active.path, error)
            return
        if self.config.strict_flush:
            self.require_synced(self.directory, path, *active.index_paths())

    # ----------------------------------------------------------------------------- sync

    @property
    def is_flushed(self) -> bool:
        """Whether a sync that covers everything written has at least begun."""
        return self.durability.is_flushed

    def ask_for_sync(self) -> None:
        """Let the next group cover what was written, even if ``flush.messages`` does not require it
        yet."""
        self.durability.mark_dirty()

    def require_synced(self, *paths: str) -> None:
        """These paths must also be on disk before later appends count as durable."""
        self.durability.require(*paths)

    def require_founded(self, *paths: str) -> None:
        """These paths must also be on disk before anything counts as durable, even if the topic's
        flush is relaxed."""
        self.durability.found(*paths)

    def fail(self, error: Exception) -> None:
        """This log failed in a way that nobody expected: it goes offline, and no other log does."""
        self.availability.broken(error)

    def begin_sync(self) -> SyncTicket:
        """A group of the group commit begins. Returns what this log puts into it."""
        return self.durability.begin(self.segments.active.path, self.end_offset)

    def finish_sync(self, ticket: SyncTicket) -> None:
        """The group is on disk. If the log was truncated since ``begin_sync``, the ticket's offsets
        are ignored."""
        if self.offline is not None:
            return
        if self.durability.finish(ticket) and self.on_durable is not None:
            self.on_durable(self)

    # ----------------------------------------------------------------------------- taking over

    def take_over(self, source: PartitionLog) -> None:
        """This log is a copy of all of ``source``, which is not written any more: go on in its
        place. Nothing more counts as durable than of ``source`` until ``release``.

        A copy that was made of the batches alone does not know of producers and leader epochs whose
        batches were deleted: they come from ``source``. Raises StorageError: nothing has changed.
        """
        assert source.end_offset == self.end_offset, (source, self)
        try:
            states = source.producers.copy()
            path = self._producer_files.write(self.end_offset, states)
        except OSError as error:
            raise self.availability.refusal(error) from error
        self.config = source.config
        self.dropped_end = source.dropped_end
        self.epochs = LeaderEpochs(source.epochs.entries)
        self.epochs.dirty = True
        # ``source`` keeps a copy: after a crash it may be the log again.
        self.producers, source.producers = source.producers, states
        self.transactions.truncated()
        self.durability.hold(source.durable_offset, source.truncation_generation)
        self.require_synced(path)

    def release(self) -> None:
        """This log is the only one on disk: what is on disk of it counts as durable."""
        if self.durability.release() and self.on_durable is not None:
            self.on_durable(self)

    def sync_now(self) -> None:
        """Sync everything, waiting for the device. For tests, and for tools without an owner."""
        ticket = self.begin_sync()
        for path in ticket.paths:
            self._disk.sync_now(path)
        self.finish_sync(ticket)

    def go_offline(self, error: OSError) -> None:
        """Refuse all reads and writes from now on."""
        self.availability.go_offline(error)

    # ----------------------------------------------------------------------------- roll

    def _roll(self) -> None:
        """Seal the active segment and begin another one at the log's end."""
        old = self.segments.active
        if self.config.strict_flush and self.synced_offset < self.end_offset:
            # Otherwise a crash could tear the end of this segment and leave whole batches in the
            # next, which recovery would take for corruption.
            try:
                self._disk.sync_now(old.path)
            except OSError as error:
                raise self.availability.refusal(error) from error
        try:
            self.segments.begin(self.end_offset, created_ms=self._clock.time_ms())
        except OSError as error:
            if is_disk_full(error):
                self._owner.refused(self, 0)
            raise self.availability.refusal(error) from error
        try:
            old.seal()
            self._producer_files.begin(self.end_offset, self.producers)
            path = self._producer_files.go_on(self.segments.bases)
            if path is not None:
                self.require_synced(path)
        except OSError as error:
            # Recovery can rebuild both from the log.
            logger.warning("%s: index or producer snapshot not written: %s", old.path, error)
        self.require_synced(self.directory, old.path, *old.index_paths())

    # ----------------------------------------------------------------------------- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        limit_offset: int | None = None,
        min_one_batch: bool = True,
    ) -> ReadResult:
        """Whole batches of one segment, beginning with the one that holds ``offset``.

        All are below ``limit_offset`` (high watermark or last stable offset; by default the log's
        end) and have at most ``max_bytes`` together. With ``min_one_batch`` the first may be
        larger. Raises ApiError OFFSET_OUT_OF_RANGE outside of the log, or KAFKA_STORAGE_ERROR;
        CorruptLogError; UnreadableLogError if the device cannot read the bytes.
        """
        return self._reader.read(
            offset, max_bytes, limit_offset=limit_offset, min_one_batch=min_one_batch
        )

    def readable_bytes(self, offset: int, limit_offset: int) -> int | None:
        """How many bytes ``read`` would return from ``offset`` on without a limit of bytes.

        None if ``offset`` is in a sealed segment, where nothing is gained by waiting for more
        records, or if only the device could tell. It examines only the few headers between an index
        entry and each end. Raises as ``read`` does.
        """
        return self._reader.readable_bytes(offset, limit_offset)

    def batches_now(self, offset: int) -> Iterator[tuple[BatchHeader, Buffer]]:
        """Every batch from the one that holds ``offset`` on. Waits for the device: only for use at
        start-up."""
        return self._reader.batches_now(offset)

    async def warm(self, cold: ColdRange) -> None:
        """Bring a cold range of a read into memory. Then read again.

        Raises UnreadableLogError, StorageError. If the segment was deleted meanwhile, that is no
        error.
        """
        await self._reader.warm(cold)

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at or after ``timestamp_ms``. None if there is none.

        This may wait for the disk, so check the leadership again afterwards.
        """
        return await time_search.first_at_or_after(self, timestamp_ms)

    async def max_timestamp_offset(self, limit_offset: int | None = None) -> TimestampOffset | None:
        """The record with the greatest timestamp (KIP-734), or the first of several, below
        ``limit_offset`` (by default the log's end). This may also wait."""
        limit = self.end_offset if limit_offset is None else limit_offset
        return await time_search.newest(self, limit)

    # ----------------------------------------------------------------------------- truncate

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds ``offset`` and everything after it. Returns the new end.

        The rest is durable when it returns. Raises StorageError: then the log is offline, or
        nothing was removed. Raises UnreadableLogError.
        """
        self.availability.check()
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
        """The error to raise. A truncation that has begun (a new generation) takes the log offline,
        and recovery completes it."""
        begun = generation != self.truncation_generation
        if is_unreadable(error):
            if begun:
                self.go_offline(error)
            return self.availability.unread(error, self.directory, 0, self.end_offset)
        return self.availability.failure(error) if begun else self.availability.refusal(error)

    def _truncate_to(self, offset: int) -> None:
        keep = self.segments.index_of(offset) + 1
        segment = self.segments.at(keep - 1)
        position = segment.locate(offset, wait=True)
        if isinstance(position, ColdRange):
            raise segment.corrupt(position.position, "the file ends inside a batch", offset)
        self._owner.lower_checkpoints(self, offset)
        is_announced = self.segments.announce_cut(keep)
        self._begin_cut()
        self._free(self.segments.drop_last(keep, is_announced=is_announced))
        segment.truncate(position)
        self.transactions.truncate_index(segment.end_offset)
        self._settle()

    def _begin_cut(self) -> None:
        self.durability.begin_cut()
        self.segments.forget_places()

    def _free(self, aside: list[str]) -> None:
        if aside:
            self._owner.set_aside(aside)

    def _settle(self) -> None:
        """After a truncation: sync everything left, and let all state be that of the new end."""
        self.end_offset = self.segments.active.end_offset
        self.start_offset = min(self.start_offset, self.end_offset)
        self.dropped_end = min(self.dropped_end, self.end_offset)
        self.epochs.truncate_from(self.end_offset)
        drop_snapshots_above(self._disk, self.directory, self.end_offset)
        self._producer_files.truncated(self.end_offset)
        self.durability.end_cut(self.end_offset)
        self._rebuild_producers()

    def _rebuild_producers(self) -> None:
        if not len(self.producers) and self.transactions.last_marker_offset < self.end_offset:
            return  # no producer counted so far, so none does in what is left
        if self.producers.undo_to(self.end_offset):
            self.transactions.truncated()
            return
        disk, now_ms = self._disk, self._clock.time_ms()
        steps = rebuild_producers(
            disk, self.directory, self.segments.all(), self.end_offset, now_ms
        )
        rebuilt = finish(disk, steps)
        self.producers = rebuilt.states
        self.producers.settle(self.ask_high_watermark())
        self.transactions.truncated()
        self._producer_files.rebuilt(rebuilt.replayed)

    def reset_to(self, offset: int) -> None:
        """Delete everything. The log is then empty and begins at ``offset``.

        Raises StorageError: then the log is offline, or nothing was deleted.
        """
        self.availability.check()
        generation = self.truncation_generation
        try:
            self._owner.lower_checkpoints(self, 0)
            is_announced = self.segments.announce_cut(0)
            self._begin_cut()
            self._free(self.segments.drop_last(0, is_announced=is_announced))
            drop_snapshots_above(self._disk, self.directory, -1)
            self.segments.begin(offset, created_ms=self._clock.time_ms())
            self.epochs.clear()
            self.start_offset = self.end_offset = offset
            self.dropped_end = 0
            self._disk.sync_now(self.directory)
            self.producers = ProducerStates(offset)
            self.transactions.truncated()
            self._producer_files = ProducerFiles(self._disk, self.directory)
            self._settle()
        except OSError as error:
            raise self._cut_failed(error, generation) from error

    # ----------------------------------------------------------------------------- retention

    def advance_start_offset(self, offset: int) -> None:
        """Records below ``offset`` are gone for readers. Never moves back.

        ``remove_dead_segments`` removes their segments once the new start is checkpointed. Raises
        ApiError OFFSET_OUT_OF_RANGE for an offset above the log's end.
        """
        self.availability.check()
        if offset > self.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} ends at {self.end_offset}, not {offset}",
            )
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.advance_start(offset)

    def leave_dead_segment(self) -> None:
        """Begin a new segment if all records of the active one are below ``start_offset``, so that
        it can be removed. Raises StorageError: the segment stays active."""
        self.availability.check()
        active = self.segments.active
        if active.size and active.end_offset <= self.start_offset:
            try:
                # Nothing else will tell the producers of its batches.
                path = self._producer_files.write(self.end_offset, self.producers)
                self.require_synced(path)
            except OSError as error:
                raise self.availability.refusal(error) from error
            self._roll()

    def remove_dead_segments(self, *, in_order: bool = False) -> int:
        """Delete segments that end at or below ``start_offset``. Returns how many.

        ``in_order`` syncs each removal before the next one. It is needed if the start offset could
        not be checkpointed: a crash must not leave a gap.
        """
        self.availability.check()
        while self._producer_files.is_begun:
            self.ease_recovery()
        try:
            snapshot = snapshot_to_sync(self, self._disk, self.start_offset)
            if snapshot is not None:
                self._disk.sync_now(snapshot)
                self._disk.sync_now(self.directory)
            dead = self.segments.drop_below(self.start_offset, in_order=in_order)
            if dead:
                drop_snapshots_below(self._disk, self.directory, self.segments.bases[0])
        except OSError as error:
            raise self.availability.refusal(error) from error
        return dead

    async def retire_dead_segments(self, *, in_order: bool = False) -> int:
        """As ``remove_dead_segments``, in slices. The event loop waits neither for the device nor
        for the space to be freed. Raises StorageError."""
        self.availability.check()
        try:
            until = self.start_offset
            await keep_producers(self, self._disk, until, lambda: self._producer_files)
            return await retire_dead_segments(self, self._disk, until, in_order=in_order)
        except OSError as error:
            raise self.availability.refusal(error) from error

    def expiring_producers(self, now_ms: int) -> Iterator[None]:
        """Forget producers that have appended nothing for ``producer.id.expiration.ms``, in
        slices."""
        return self.producers.expiring(now_ms, self.config.producer_id_expiration_ms)

    # ----------------------------------------------------------------------------- end

    def checkpoint_epochs(self) -> tuple[str, bytes] | None:
        """The path and new content of the leader-epoch-checkpoint. None if the file is up to date.

        It must be replaced before a recovery point above its newest entry is written.
        """
        if not self.epochs.dirty:
            return None
        self.epochs.dirty = False
        return f"{self.directory}/{LEADER_EPOCH_FILE}", encode_epochs(self.epochs.entries)

    def prepare_clean_shutdown(self) -> None:
        """Write indexes and producer snapshot. The next group makes them durable."""
        self.segments.active.seal()
        self.require_synced(self._producer_files.write(self.end_offset, self.producers))
        self.require_synced(self.directory, *self.segments.active.index_paths())

    def close(self) -> None:
        """Close every handle. The log can no longer be written or read."""
        self.go_offline(OSError(errno.ESHUTDOWN, "it was closed"))
        self.segments.close()
