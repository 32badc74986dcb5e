"""The append path of a log: offsets, segments, and what is noted of each batch.

An append is one change (``storage.change``): the entry of the transaction index for a marker that
aborts, then the bytes, then everything that the log knows of them. The bytes are the point of no
return. What comes after them only changes memory, so an error there is a fault of this program.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from stele.wire.batch import CONTROL, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader, stamp
from stele.wire.control_records import EndMarker
from stele.world import Buffer, Clock
from storage.change import ChangingLog, LogChange
from storage.config import LogConfig
from storage.errors import is_disk_full
from storage.log_types import AppendResult
from storage.replay import end_marker_of
from storage.runs import Run, runs_of
from storage.segment import Segment
from storage.segment_room import LogRoom
from world.disk import Disk

logger = logging.getLogger(__name__)

_UNDOABLE: Final = 16
"""From so many changes of producers on, those below the high watermark are forgotten."""


class LogAppends:
    """Appends to one log."""

    __slots__ = ("_change", "_clock", "_config", "_disk", "_log", "_refused", "_room")

    def __init__(
        self,
        log: ChangingLog,
        disk: Disk,
        clock: Clock,
        change: LogChange,
        refused: Callable[[int], None],
    ) -> None:
        """``refused`` gets the size of a write for which the disk had no room."""
        self._log = log
        self._disk = disk
        self._clock = clock
        self._change = change
        self._refused = refused
        self._config = log.config  # that ``_room`` is of
        self._room = LogRoom(log.config, log.name)

    def _take_config(self, config: LogConfig) -> None:
        self._config, self._room = config, LogRoom(config, self._log.name)

    # ------------------------------------------------------------------------- the leader

    def as_leader(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        check_sequence: bool,
    ) -> AppendResult:
        """As ``PartitionLog.append_as_leader``."""
        log, change = self._log, self._change
        change.prepare(header.size_bytes)
        if leader_epoch < log.epochs.latest_epoch:
            raise ValueError(f"epoch {leader_epoch} after {log.epochs.latest_epoch} in {log}")
        config = log.config
        if header.producer_id >= 0 and check_sequence:
            original = log.producers.check(header, config.producer_ids_max)
            if original is not None:
                time_ms = original.append_time_ms if config.log_append_time else NO_TIMESTAMP
                return AppendResult(original.base_offset, original.last_offset, time_ms, True)
        base_offset = log.end_offset
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
        if config is not self._config:
            self._take_config(config)
        if not self._room.fits(log.segments.active, size, last_offset, newest_ms, now_ms):
            self.roll()
        segment = log.segments.active
        marker: EndMarker | None = None
        try:
            if header.attributes & CONTROL and header.producer_id >= 0:
                marker = end_marker_of(batch)
                self._announce(header.producer_id, marker, base_offset)
            position = self._write(batch)
            segment.note(last_offset, newest_ms, position, size, config.index_interval_bytes)
            if leader_epoch != log.epochs.latest_epoch:
                log.epochs.assign(leader_epoch, base_offset)
            if header.producer_id >= 0:
                self._note_producer(header, marker, base_offset, now_ms)
            self._advance(last_offset + 1, 1, size)
        except Exception as error:
            change.fail(error, log.end_offset)
            raise
        return AppendResult(base_offset, last_offset, append_time_ms)

    # ----------------------------------------------------------------------- the follower

    def as_follower(self, data: Buffer, *, verify_crc: bool) -> AppendResult:
        """As ``PartitionLog.append_as_follower``."""
        log = self._log
        log.availability.check()
        first_offset = log.end_offset
        # Drop an epoch at the log's end: this replica led it and wrote nothing. The current
        # leader's batches at this offset may be of an earlier epoch.
        log.epochs.truncate_from(first_offset)
        view, now_ms = memoryview(data), self._clock.time_ms()
        if log.config is not self._config:
            self._take_config(log.config)
        for run in runs_of(view, log, self._room, verify_crc=verify_crc, now_ms=now_ms):
            if run.roll_first:
                self.roll()
            self._append_run(view, run)
        return AppendResult(first_offset, log.end_offset - 1)

    def _append_run(self, view: memoryview, whole: Run) -> None:
        log = self._log
        segment = log.segments.active
        run, markers = whole.batches, whole.markers
        start = run[0][0]
        end = run[-1][0] + run[-1][1].size_bytes
        self._change.prepare(end - start)
        try:
            if markers and len(run) == 1:
                first = run[0][1]
                self._announce(first.producer_id, markers[start], first.base_offset)
            offset = self._write(view[start:end]) - start
            interval = log.config.index_interval_bytes
            now_ms = self._clock.time_ms()
            end_before = log.end_offset
            for at, header in run:
                segment.note(
                    header.last_offset,
                    header.max_timestamp_ms,
                    offset + at,
                    header.size_bytes,
                    interval,
                )
                if header.leader_epoch != log.epochs.latest_epoch:
                    log.epochs.assign_from_batch(header.leader_epoch, end_before, log.start_offset)
                end_before = header.next_offset
                if header.producer_id >= 0:
                    self._note_producer(header, markers.get(at), header.base_offset, now_ms)
            self._advance(run[-1][1].next_offset, len(run), end - start)
        except Exception as error:
            self._change.fail(error, log.end_offset)
            raise

    # --------------------------------------------------------------------------- one write

    def _announce(self, producer_id: int, marker: EndMarker | None, offset: int) -> None:
        """If a marker aborts a transaction, the transaction index has it before the log does."""
        transactions = self._log.transactions
        if transactions.announce(producer_id, marker, offset):
            self._change.undo = transactions.retract

    def _write(self, data: Buffer) -> int:
        """Write to the active segment's file, from where on the change has begun. Returns the
        position. Raises OSError."""
        segment, change = self._log.segments.active, self._change
        try:
            position = segment.write([data])
        except OSError:
            change.has_begun = not segment.intact
            raise
        change.has_begun = True
        return position

    def _note_producer(
        self, header: BatchHeader, marker: EndMarker | None, offset: int, now_ms: int
    ) -> None:
        """Note a batch of a producer, which is written at ``offset``."""
        log = self._log
        if header.attributes & CONTROL:
            log.transactions.ended(header, marker, offset, now_ms)
            return
        log.producers.update(header, offset, now_ms)
        if header.attributes & TRANSACTIONAL:
            log.transactions.begun()

    def _advance(self, end_offset: int, batch_count: int, size: int) -> None:
        log = self._log
        records = end_offset - log.end_offset
        log.end_offset = end_offset
        if log.producers.undoable > _UNDOABLE:
            log.producers.settle(log.ask_high_watermark())
        if log.producer_files.appended(batch_count, size):
            self.ease_recovery()
        log.durability.appended(records, end_offset, log.config)

    # ---------------------------------------------------------------------------- segments

    def roll(self) -> None:
        """Seal the active segment and begin another one at the log's end. Raises StorageError: the
        segment stays active, or the log is offline."""
        log = self._log
        old = log.segments.active
        if log.config.strict_flush and log.durability.synced_offset < log.end_offset:
            # Otherwise a crash could tear the end of this segment and leave whole batches in the
            # next, which recovery would take for corruption.
            try:
                self._disk.sync_now(old.path)
            except OSError as error:
                raise log.availability.refusal(error) from error
        try:
            log.segments.begin(log.end_offset, created_ms=self._clock.time_ms())
        except OSError as error:
            if is_disk_full(error):
                self._refused(0)
            raise log.availability.refusal(error) from error
        # Retention waits for this snapshot, so it is begun whatever becomes of the index.
        log.producer_files.begin(log.end_offset, log.producers)
        try:
            old.seal()
            path = log.producer_files.go_on(log.segments.bases)
            if path is not None:
                log.durability.require(path)
        except OSError as error:
            # Recovery can rebuild both from the log.
            logger.warning("%s: index or producer snapshot not written: %s", old.path, error)
            self._hold_indexes(old)
        log.durability.require(log.directory, old.path, *old.index_paths())

    def _hold_indexes(self, sealed: Segment) -> None:
        try:
            sealed.hold_indexes()
        except OSError as error:
            raise self._log.availability.failure(error) from error

    def ease_recovery(self) -> None:
        """Write producer state and indexes every so often, so that truncations and recoveries have
        little to replay."""
        log = self._log
        active = log.segments.active
        try:
            path = log.producer_files.save_if_due(log.end_offset, log.producers, log.segments.bases)
            if path is None:
                return
            active.flush_indexes()
        except OSError as error:
            # Recovery can rebuild both from the log, only more slowly.
            logger.warning("%s: index or producer snapshot not written: %s", active.path, error)
            return
        if log.config.strict_flush:
            log.durability.require(log.directory, path, *active.index_paths())
