"""The transactions in one log: the open ones, the ended ones and the aborted ones."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from operator import attrgetter
from typing import Final, Protocol

from stele.wire.batch import BatchHeader
from stele.wire.control_records import EndMarker
from storage.availability import Availability
from storage.cold_range import ColdRange
from storage.producer_recovery import aborted_entry
from storage.producer_state import EndedTransaction, ProducerStates
from storage.segments import Segments
from storage.txn_index import AbortedTransaction, TxnIndex
from world.disk import Disk

_LOADED: Final = 4  # indexes of sealed segments that stay in memory


class TransactionalLog(Protocol):
    """The parts of a log that this needs."""

    directory: str
    segments: Segments
    producers: ProducerStates
    availability: Availability

    def require_synced(self, *paths: str) -> None: ...


class LogTransactions:
    """Has the transaction indexes of one log, and reports which transactions a marker ended."""

    __slots__ = (
        "_bases",
        "_disk",
        "_loaded",
        "_log",
        "first_open_offset",
        "last_marker_offset",
        "on_ended",
        "undecided",
    )

    def __init__(
        self, log: TransactionalLog, disk: Disk, undecided: list[EndedTransaction]
    ) -> None:
        self._log = log
        self._disk = disk
        # The base offsets of the segments with a transaction index, in rising order. Some of the
        # segments may be gone.
        self._bases = [each.base_offset for each in log.segments if each.txn_index.is_present]
        self._loaded: list[TxnIndex] = []  # the least recently used first
        self.first_open_offset = log.producers.first_open_offset
        """Where the oldest open transaction begins; ``NEVER`` if none is open."""
        self.last_marker_offset = max((each.marker_offset for each in undecided), default=-1)
        """The offset of the last marker that was appended since the start, or is not below the
        checkpointed high watermark; -1 if there is none."""
        self.undecided = undecided
        """What recovery found: the ended transactions whose markers are not below the checkpointed
        high watermark. The log's user begins with them."""
        self.on_ended: Callable[[EndedTransaction], None] | None = None
        """Called after a marker has ended a transaction. Its records are decided when the marker is
        below the high watermark."""

    @property
    def has_aborted(self) -> bool:
        """Whether a transaction may have been aborted in the rest of the log."""
        return bool(self._bases)

    def begun(self) -> None:
        """A transactional batch was appended."""
        self.first_open_offset = self._log.producers.first_open_offset

    def announce(self, producer_id: int, marker: EndMarker | None, offset: int) -> bool:
        """A marker is about to be appended at ``offset`` to the active segment. Returns whether it
        aborts a transaction: that is in the index now.

        The entry comes first. A full disk then refuses both, or the marker alone, and ``retract``
        takes the entry back. Raises OSError: nothing has changed.
        """
        if marker is None or marker.commit:
            return False
        producers = self._log.producers
        ended = producers.would_end(producer_id, marker, offset)
        if ended is None:
            return False
        self._index(aborted_entry(ended, producers.first_open_beside(producer_id)))
        return True

    def retract(self) -> None:
        """The marker that was announced last is not in the log. Raises OSError: the index has an
        entry too many, and the log must go offline."""
        self._log.segments.active.txn_index.drop_last(self._disk)

    def ended(
        self, header: BatchHeader, marker: EndMarker | None, offset: int, now_ms: int
    ) -> None:
        """A marker was appended at ``offset``, and was announced before."""
        log = self._log
        ended = log.producers.end(header, marker, offset, now_ms)
        self.last_marker_offset = offset
        self.first_open_offset = log.producers.first_open_offset
        if ended is not None and self.on_ended is not None:
            self.on_ended(ended)

    def _index(self, entry: AbortedTransaction) -> None:
        log, segment = self._log, self._log.segments.active
        is_new = not segment.txn_index.is_present
        segment.txn_index.append(self._disk, entry)
        if is_new:
            self._has_index(segment.base_offset)
            log.require_synced(log.directory, segment.txn_index.path)
        else:
            log.require_synced(segment.txn_index.path)

    def _has_index(self, base_offset: int) -> None:
        if base_offset not in self._bases:
            insort(self._bases, base_offset)

    def replaced(self, base_offset: int) -> None:
        """A compacted segment has taken the place of others."""
        segments = self._log.segments
        if segments.at(segments.index_of(base_offset)).txn_index.is_present:
            self._has_index(base_offset)

    def truncated(self) -> None:
        """The log was truncated, and its producers are as of the new end."""
        self.first_open_offset = self._log.producers.first_open_offset

    def truncate_index(self, offset: int) -> None:
        """Remove the entries of markers from ``offset`` on, durably. The later segments are gone
        already. Raises OSError."""
        index = self._log.segments.active.txn_index
        if index.truncate_to(self._disk, offset):
            self._disk.sync_now(index.path)

    def aborted(self, offset: int, end_offset: int) -> list[AbortedTransaction] | ColdRange:
        """The aborted transactions with offsets from ``offset`` to below ``end_offset``, in the
        order of their markers; or what must be warmed first.

        Transactions that are open at ``end_offset`` are not known yet. So nothing at or above the
        last stable offset may be asked for. Raises CorruptLogError, StorageError.
        """
        found: list[AbortedTransaction] = []
        segments = self._log.segments
        first_base = segments.bases[max(0, segments.index_of(offset))]
        for base in self._bases[bisect_left(self._bases, first_base) :]:
            at = segments.index_of(base)
            if segments.bases[at] != base:  # so it is at -1
                self._bases.remove(base)
                continue
            index = segments.at(at).txn_index
            try:
                entries = index.entries(self._disk)
            except OSError as error:
                raise self._log.availability.unread(error, index.path, 0, offset) from error
            if isinstance(entries, ColdRange):
                return entries
            self._use(index)
            for entry in entries[bisect_left(entries, offset, key=attrgetter("last_offset")) :]:
                if entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found
        return found

    def _use(self, index: TxnIndex) -> None:
        if index in self._loaded:
            self._loaded.remove(index)
        self._loaded.append(index)
        if len(self._loaded) > _LOADED:
            self._loaded.pop(0).unload()
