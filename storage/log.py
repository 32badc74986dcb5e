"""One partition's log: segments, leader epochs, producer state, and how far it is durable.

Everything is synchronous and runs on the event loop, so it must not wait for the disk. The group
commit begins and finishes syncs. A read that would wait for cold bytes returns them as a
``ColdRange`` to warm first. A few rare operations do wait: opening, truncating, and the sync of a
full segment.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial

from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.batch import BatchHeader, batches
from stele.world import Buffer, Clock
from storage import time_search
from storage.appending import LogAppends
from storage.availability import Availability
from storage.change import LogChange
from storage.checkpoints import LEADER_EPOCH_FILE, encode_epochs
from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.cutting import LogCuts
from storage.durability import Durability
from storage.leader_epochs import EpochEndOffset, LeaderEpochs
from storage.log_transactions import LogTransactions
from storage.log_types import (
    AppendResult,
    LogOwner,
    ReadResult,
    SyncTicket,
    TimestampOffset,
)
from storage.producer_files import ProducerFiles
from storage.producer_handover import HandedProducers
from storage.reading import LogReader
from storage.recovered import RecoveredLog
from storage.retiring import (
    keep_producers,
    known_from,
    retire_dead_segments,
    snapshot_to_sync,
)
from storage.segments import Segments
from storage.snapshots import drop_snapshots_below
from storage.unowned import Unowned
from world.disk import Disk


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
        """The log end offset: the offset of the next record. It is always the last segment's end
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
        self.segments = Segments(disk, directory, recovered.segments)
        self.availability = Availability(
            directory, self.segments.close, lambda error: told.failed(self, error)
        )
        self.durability = Durability(
            disk, self.end_offset, partial(told.dirty, self), partial(told.unflushed, self)
        )
        self.transactions = LogTransactions(self, disk, recovered.producers.undecided)
        self.producer_files = ProducerFiles(disk, directory, recovered.producers.replayed)
        self._reader = LogReader(self, disk)
        change = LogChange(directory, self.availability, lambda size: told.refused(self, size))
        self._appends = LogAppends(self, disk, clock, change, lambda size: told.refused(self, size))
        self._cuts = LogCuts(
            self,
            disk,
            clock,
            change,
            lower_checkpoints=lambda offset: told.lower_checkpoints(self, offset),
            set_aside=told.set_aside,
        )

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

        ``header`` is its header. Its CRC is checked (``stele.wire.produced.validate_produced``).
        If a producer repeats a batch, the result is its original place. Raises ApiError
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR; then nothing was
        appended.
        """
        return self._appends.as_leader(
            batch,
            header,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            check_sequence=check_sequence,
        )

    def append_as_follower(self, data: Buffer, *, verify_crc: bool = True) -> AppendResult:
        """Append the whole batches of ``data``, which have offsets and leader epochs already.

        A Raft leader also writes its own batches by this. A part of a batch at the end is left out.
        Raises OutOfOrderOffsetsError or CorruptBatchError (CORRUPT_MESSAGE): then the batches
        before the faulty one were appended. Raises StorageError.
        """
        return self._appends.as_follower(data, verify_crc=verify_crc)

    def ease_recovery(self) -> None:
        """Write producer state and indexes every so often, so that truncations and recoveries have
        little to replay."""
        self._appends.ease_recovery()

    # ----------------------------------------------------------------------------- sync

    @property
    def is_flushed(self) -> bool:
        """Whether a sync that covers everything written has at least begun."""
        return self.durability.is_flushed

    def ask_for_sync(self) -> None:
        """Let the next group cover all writes, even if ``flush.messages`` does not require it
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
        """This log failed in an unexpected way: it goes offline, and no other log does."""
        self.availability.broken(error)

    def begin_sync(self) -> SyncTicket:
        """A group of the group commit begins. Returns this log's part of it."""
        active = self.segments.active
        active.sync_begun_at = active.size
        return self.durability.begin(active.path, self.end_offset)

    @property
    def unsynced_bytes(self) -> int:
        """What was appended since the last sync began. A segment that ended since then was synced
        at its end."""
        active = self.segments.active
        return max(active.size - active.sync_begun_at, 0)

    def finish_sync(self, ticket: SyncTicket) -> None:
        """The group is on disk. If the log was truncated since ``begin_sync``, the ticket's offsets
        are ignored."""
        if self.availability.offline is not None:
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
            path = self.producer_files.write(self.end_offset, states)
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
        """This log is the only one on disk now: its bytes on disk count as durable."""
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

        None if ``offset`` is in a sealed segment, where a reader gains nothing by waiting for more
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
        self._cuts.cut_to(offset)
        return self.end_offset

    def reset_to(self, offset: int, producers: HandedProducers | None = None) -> None:
        """Delete everything. The log is then empty and begins at ``offset``, and knows these
        producers.

        Raises StorageError: then the log is offline, or nothing was deleted.
        """
        self._cuts.reset_to(offset, producers)

    def handed_producers(self, offset: int) -> HandedProducers:
        """For the producers with which this log is to begin anew at ``offset``."""
        return HandedProducers(offset, self._clock.time_ms())

    def base_to_begin_with(self, records: Buffer) -> int | None:
        """The base offset of the first batch, if this log is empty and its end is within that
        batch. Records may have been deleted up to the middle of a batch, and a copy gets the whole
        batch.
        """
        _, first = next(batches(records), (0, None))
        if first is None or self.start_offset != self.end_offset:
            return None
        is_within = first.base_offset < self.end_offset <= first.last_offset
        return first.base_offset if is_within else None

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
                # Nothing else will know the producers of its batches.
                path = self.producer_files.write(self.end_offset, self.producers)
                self.require_synced(path)
            except OSError as error:
                raise self.availability.refusal(error) from error
            self._appends.roll()

    def remove_dead_segments(self, *, in_order: bool = False) -> int:
        """Delete segments that end at or below ``start_offset``. Returns how many.

        ``in_order`` syncs each removal before the next one. It is needed if the start offset could
        not be checkpointed: a crash must not leave a gap.
        """
        self.availability.check()
        while self.producer_files.is_begun:
            self.ease_recovery()
        try:
            base = known_from(self, self._disk, self.start_offset)
            snapshot = snapshot_to_sync(self, self._disk, base)
            if snapshot is not None:
                self._disk.sync_now(snapshot)
                self._disk.sync_now(self.directory)
            dead = self.segments.drop_below(min(base, self.start_offset), in_order=in_order)
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
            until = await keep_producers(
                self,
                self._disk,
                self.start_offset,
                lambda: self.producer_files,
                self._clock.time_ms(),
            )
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
        self.require_synced(self.producer_files.write(self.end_offset, self.producers))
        self.require_synced(self.directory, *self.segments.active.index_paths())

    def close(self) -> None:
        """Close every handle. The log can no longer be written or read."""
        self.go_offline(OSError(errno.ESHUTDOWN, "it was closed"))
        self.segments.close()
