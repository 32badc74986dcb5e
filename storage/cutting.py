"""Truncations of a log: a cut is one change (``storage.change``).

It has begun once the generation of the log has risen. After that the log is what recovery makes of
it, if anything fails: a cut of several segments is noted on disk before (``storage.cuts``).
"""

from __future__ import annotations

from collections.abc import Callable

from stele.world import Clock
from storage.change import ChangingLog, LogChange
from storage.cold_range import ColdRange
from storage.producer_files import ProducerFiles
from storage.producer_handover import HandedProducers
from storage.producer_recovery import rebuild_producers
from storage.producer_state import ProducerStates
from storage.snapshots import drop_snapshots_above, write_snapshot
from storage.steps import finish
from world.disk import Disk


class LogCuts:
    """Truncates one log."""

    __slots__ = ("_change", "_clock", "_disk", "_log", "_lower_checkpoints", "_set_aside")

    def __init__(
        self,
        log: ChangingLog,
        disk: Disk,
        clock: Clock,
        change: LogChange,
        *,
        lower_checkpoints: Callable[[int], None],
        set_aside: Callable[[list[str]], None],
    ) -> None:
        """``lower_checkpoints`` and ``set_aside``: as of ``LogOwner``."""
        self._log = log
        self._disk = disk
        self._clock = clock
        self._change = change
        self._lower_checkpoints = lower_checkpoints
        self._set_aside = set_aside

    def cut_to(self, offset: int) -> None:
        """Remove the batch that holds ``offset``, which is not below the first segment, and
        everything after it. Raises as ``PartitionLog.truncate_to``."""
        self._change.prepare()
        try:
            self._cut_to(offset)
        except Exception as error:
            self._change.fail(error, self._log.end_offset)
            raise

    def reset_to(self, offset: int, producers: HandedProducers | None) -> None:
        """As ``PartitionLog.reset_to``."""
        self._change.prepare()
        try:
            if producers:
                self._save_handed(offset, producers)
            self._reset_to(offset, producers)
        except Exception as error:
            self._change.fail(error, self._log.end_offset)
            raise

    def _cut_to(self, offset: int) -> None:
        log = self._log
        keep = log.segments.index_of(offset) + 1
        segment = log.segments.at(keep - 1)
        position = segment.locate(offset, wait=True)
        if isinstance(position, ColdRange):
            raise segment.corrupt(position.position, "the file ends inside a batch", offset)
        self._lower_checkpoints(offset)
        is_announced = log.segments.announce_cut(keep)
        self._begin()
        self._free(log.segments.drop_last(keep, is_announced=is_announced))
        segment.truncate(position)
        log.transactions.truncate_index(segment.end_offset)
        self._settle()

    def _save_handed(self, offset: int, producers: HandedProducers) -> None:
        """Have the snapshot at the log's new beginning on disk before the log begins there: nothing
        else knows these producers. If a crash comes first, the old log stays, and the snapshot is
        right for it, too."""
        directory = self._log.directory
        path = write_snapshot(self._disk, directory, offset, producers.snapshot)
        self._disk.sync_now(path)
        self._disk.sync_now(directory)

    def _reset_to(self, offset: int, producers: HandedProducers | None) -> None:
        log = self._log
        self._lower_checkpoints(0)
        is_announced = log.segments.announce_cut(0)
        self._begin()
        self._free(log.segments.drop_last(0, is_announced=is_announced))
        saved = offset if producers else None
        drop_snapshots_above(self._disk, log.directory, -1, but=saved)
        log.segments.begin(offset, created_ms=self._clock.time_ms())
        log.epochs.clear()
        log.start_offset = log.end_offset = offset
        log.dropped_end = 0
        self._disk.sync_now(log.directory)
        log.producers = producers.states if producers else ProducerStates(offset)
        log.transactions.truncated()
        log.producer_files = ProducerFiles(self._disk, log.directory)
        self._settle()

    def _begin(self) -> None:
        self._change.has_begun = True
        self._log.durability.begin_cut()
        self._log.segments.forget_places()

    def _free(self, aside: list[str]) -> None:
        if aside:
            self._set_aside(aside)

    def _settle(self) -> None:
        """Sync everything that is left, and bring all state to the new end."""
        log = self._log
        log.end_offset = log.segments.active.end_offset
        log.start_offset = min(log.start_offset, log.end_offset)
        log.dropped_end = min(log.dropped_end, log.end_offset)
        log.epochs.truncate_from(log.end_offset)
        drop_snapshots_above(self._disk, log.directory, log.end_offset)
        log.producer_files.truncated(log.end_offset)
        log.durability.end_cut(log.end_offset)
        self._rebuild_producers()

    def _rebuild_producers(self) -> None:
        log = self._log
        if not len(log.producers) and log.transactions.last_marker_offset < log.end_offset:
            return  # no producer counted so far, so none does in the rest
        if log.producers.undo_to(log.end_offset):
            log.transactions.truncated()
            return
        disk, now_ms = self._disk, self._clock.time_ms()
        steps = rebuild_producers(disk, log.directory, log.segments.all(), log.end_offset, now_ms)
        rebuilt = finish(disk, steps)
        log.producers = rebuilt.states
        log.producers.settle(log.ask_high_watermark())
        log.transactions.truncated()
        log.producer_files.rebuilt(rebuilt.replayed)
