"""The producers and transactions of a log when it is opened, and after a truncation.

The state is that of the newest sound snapshot, and of the batches after it. Transactions whose
markers are not below the high watermark must be known, too, because their records are not decided
yet. So if there is a marker above the high watermark, the snapshot must be from below it.

The entries of markers below the recovery point are in the transaction index files. The entries of
later markers are rebuilt.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from stele.wire.batch import BatchHeader
from stele.wire.control_records import EndMarker
from storage.cold_range import ColdRange
from storage.producer_state import EndedTransaction, ProducerStates, SnapshotEncoding
from storage.recovery import RecoveredSegments, RecoveryRequest
from storage.replay import Replayed, replay
from storage.segment import Segment
from storage.snapshots import newest_snapshot, write_snapshot
from storage.steps import Steps, Sync, Turn
from storage.txn_index import AbortedTransaction
from world.disk import Disk


@dataclass(slots=True)
class RecoveredProducers:
    """The producers of a log as of its end."""

    states: ProducerStates
    replayed: Replayed
    undecided: list[EndedTransaction] = field(default_factory=list)
    """The ended transactions whose markers are not below the checkpointed high watermark."""


def recover_producers(
    request: RecoveryRequest, recovered: RecoveredSegments
) -> Steps[RecoveredProducers]:
    """The producer state as of the log's end. It also corrects the transaction indexes.

    Batches below the log's start count as long as they exist, because their producers go on from
    them. Raises CorruptLogError, OSError.
    """
    end_offset = recovered.end_offset
    # A marker below the first segment is gone, and its transaction is decided.
    floor = max(
        min(request.recovery_point, request.high_watermark), recovered.segments[0].base_offset
    )
    states, offset = yield from newest_snapshot(
        request.disk,
        request.directory,
        end_offset,
        usable_upto=floor if recovered.has_markers else end_offset,
    )
    result = RecoveredProducers(states, Replayed(0, 0))
    aborted: list[AbortedTransaction] = []

    headless = _forget_compacted(states, recovered.segments)

    def take(header: BatchHeader, marker: EndMarker | None) -> None:
        headless.take(header)
        ended = states.update_from(header, marker, request.now_ms)
        if ended is None:
            return
        if ended.marker_offset >= request.high_watermark:
            result.undecided.append(ended)
        if not ended.commit and ended.marker_offset >= request.recovery_point:
            aborted.append(aborted_entry(ended, states.first_open_offset))

    if offset < recovered.scanned_from or recovered.has_producers:
        result.replayed = yield from replay(recovered.segments, offset, take)
        states.settle(request.high_watermark)
    headless.forget(states)
    if not request.clean_shutdown:
        yield from _correct_indexes(request, recovered.segments, aborted)
    return result


def rebuild_producers(
    disk: Disk, directory: str, segments: Sequence[Segment], end_offset: int, now_ms: int
) -> Steps[RecoveredProducers]:
    """The producer state of a truncated log. Its transaction indexes are right already, and the
    caller knows which transactions are undecided. Raises CorruptLogError, OSError."""
    states, offset = yield from newest_snapshot(disk, directory, end_offset)
    headless = _forget_compacted(states, segments)

    def take(header: BatchHeader, marker: EndMarker | None) -> None:
        headless.take(header)
        states.update_from(header, marker, now_ms)

    replayed = yield from replay(segments, offset, take)
    headless.forget(states)
    return RecoveredProducers(states, replayed)


def write_missing_snapshot(
    disk: Disk, directory: str, segments: Sequence[Segment], now_ms: int
) -> Steps[str]:
    """Write the producer state as of the end of these segments, the first ones of a log. Returns
    the path, which is not synced. Raises CorruptLogError, OSError."""
    end_offset = segments[-1].end_offset
    states, offset = yield from newest_snapshot(
        disk, directory, sys.maxsize, usable_upto=end_offset
    )
    headless = _forget_compacted(states, segments)

    def take(header: BatchHeader, marker: EndMarker | None) -> None:
        headless.take(header)
        states.update_from(header, marker, now_ms)

    yield from replay(segments, offset, take)
    headless.forget(states)
    encoding = SnapshotEncoding(states)
    while not encoding.go_on():
        yield Turn.OVER
    return write_snapshot(disk, directory, end_offset, encoding.data)


def aborted_entry(ended: EndedTransaction, first_open_offset: int) -> AbortedTransaction:
    """The index entry of an aborted transaction. ``first_open_offset``: of the oldest transaction
    that is open behind the marker."""
    return AbortedTransaction(
        ended.producer_id,
        ended.first_offset,
        ended.marker_offset,
        min(first_open_offset, ended.marker_offset + 1),
    )


class _Headless:
    """The open transactions of a snapshot that have no batch below the snapshot's offset any more,
    because the segments are deleted. Batches behind the snapshot may belong to them."""

    def __init__(self) -> None:
        self.first_offsets: dict[int, int] = {}  # by producer id

    def take(self, header: BatchHeader) -> None:
        """Take a batch behind the snapshot. Records of a transaction show that it lives."""
        if header.is_transactional and not header.is_control:
            self.first_offsets.pop(header.producer_id, None)

    def forget(self, states: ProducerStates) -> None:
        """Forget the transactions that have no batch left. Their outcome is never asked for again,
        and a compaction may have removed their markers."""
        for producer_id, first_offset in self.first_offsets.items():
            entry = states.get(producer_id)
            if entry is not None and entry.transaction_first_offset == first_offset:
                states.forget_open(producer_id)


def _forget_compacted(states: ProducerStates, segments: Sequence[Segment]) -> _Headless:
    """A snapshot may contain an open transaction whose marker a compaction has removed since, after
    it had removed the records. Only ended transactions are compacted, so a transaction without its
    first batch was ended.

    Retention may have removed the first batch of an open one. Then only the batches after the
    snapshot show whether there is more of it.
    """
    bases = [segment.base_offset for segment in segments]
    headless = _Headless()
    for producer_id, first_offset in states.open_transactions():
        at = bisect_right(bases, first_offset) - 1
        if at >= 0:
            if not _begins_at(segments[at], first_offset, producer_id):
                states.forget_open(producer_id)
            continue
        entry = states.get(producer_id)
        assert entry is not None  # it has an open transaction
        if entry.last_offset < bases[0]:
            headless.first_offsets[producer_id] = first_offset
    return headless


def _begins_at(segment: Segment, offset: int, producer_id: int) -> bool:
    """Whether a batch of the producer begins at ``offset``."""
    position = segment.locate(offset, wait=True)
    if isinstance(position, ColdRange):
        raise segment.corrupt(position.position, "the file ends inside a batch", offset)
    if position >= segment.size:
        return False
    header = segment.header_at(position, offset)
    return header.base_offset == offset and header.producer_id == producer_id


def _correct_indexes(
    request: RecoveryRequest, segments: Sequence[Segment], aborted: list[AbortedTransaction]
) -> Steps[None]:
    """Keep the entries below the recovery point, followed by the rebuilt ones.

    An index that has the rebuilt entries already is synced, too: the process before this one may
    have been killed before it synced them, and the recovery point is about to pass them.
    """
    unsynced: list[str] = []
    for segment in segments:
        if segment.end_offset <= request.recovery_point and segment is not segments[-1]:
            continue
        index = segment.txn_index
        kept = index.read_sound(request.disk, below=request.recovery_point)
        anew = [
            each for each in aborted if segment.base_offset <= each.last_offset < segment.end_offset
        ]
        if index.replace_behind(request.disk, kept, anew) or anew:
            unsynced.append(index.path)
    if unsynced:
        yield Sync((*unsynced, request.directory))
