"""Opening the segments of a log: finds torn writes and corruption.

The rule: recovery walks the batches from the recovery point on, more precisely from the last batch
below it that the segment's index names. The walk ends at the end of the last file, or at a *cut*:
bytes that are not a whole and sound batch that follows the one before. A cut is a torn write, and
is truncated, only if it is at or above both the recovery point and the checkpointed high watermark,
and no whole batch comes after it (``storage.torn_writes``). (One may come after it in the same
segment if sectors of the batch at the cut were never written.) Every other cut is corruption.
Batches that are not walked are checked when they are read (``Segment.unseen_bytes``), so corrupt
ones are never served.

Opening a directory lowers recovery points above the high watermark to the high watermark. So the
batches between the two are checked now, even if nothing is walked. At the next opening damage there
would look like a torn write, and an acknowledged record would be truncated.

The pages of a file reach the device in any order. So a power loss may leave the second of two
unsynced batches and not the first. Those sectors of the first batch that were not written are
zeroes, as they were beyond the end of the file. Flipped bits and foreign bytes are not zeroes. (Two
faults look like sectors that were never written: a device that loses sectors which it had
confirmed, and a flipped bit in a batch whose records contain a sector of zeroes. Only the recovery
point tells these apart.)
"""

from __future__ import annotations

import itertools
import logging
import struct
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stele.wire.batch import (
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchError,
    BatchHeader,
    check_crc,
    read_header,
)
from stele.world import Buffer
from storage.checkpoints import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, read_epochs
from storage.cold_range import ColdRange
from storage.cuts import cut_path, read_cut
from storage.errors import CorruptLogError, is_disk_full
from storage.leader_epochs import LeaderEpochs
from storage.replay import replay
from storage.segment import Segment
from storage.segment_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    parse_file_name,
)
from storage.steps import BATCHES_PER_TURN, Pace, Steps, Sync, Turn, Warm
from storage.swaps import finish_swap
from storage.torn_writes import find_batch, is_batch
from world.disk import Disk

logger = logging.getLogger(__name__)

_SCAN_BYTES: Final = 4 << 20
_SEGMENTS_PER_TURN: Final = 64  # segments that are opened in one turn of the event loop
_FRAME = struct.Struct(">qi")
_SECTOR_BYTES: Final = 512  # the least that any device writes at once
_BASE_OFFSET_SIZE: Final = 8


class Cut(NamedTuple):
    """The place in a segment where the whole batches end before the file does."""

    position: int
    offset: int  # the offset that the batch at the cut should have
    reason: str


class FoundEpoch(NamedTuple):
    """A leader epoch as batches show it. Compaction may have removed its first batches."""

    epoch: int
    end_before: int  # the end of the last batch before it
    first_offset: int  # of its first batch

    def start(self, known: Mapping[int, int]) -> int:
        """Where it begins. ``known``: the epochs' starts by the file. A start that is in the file
        and fits the batches is right, whatever else is wrong in the file."""
        start = known.get(self.epoch, self.end_before)
        return start if self.end_before <= start <= self.first_offset else self.end_before


@dataclass(slots=True)
class RecoveredSegments:
    """Segments in order, at least one. The last is the active segment."""

    segments: list[Segment]
    scanned_from: int  # the offset from which on every batch was checked in full
    truncated_bytes: int = 0  # bytes that were truncated as a torn write
    epochs: list[FoundEpoch] = field(default_factory=list)
    """The leader epochs of the checked batches."""
    _checked_to: int | None = None  # the end of the last checked batch
    has_producers: bool = False
    """Whether one of the checked batches has a producer id."""
    has_markers: bool = False
    """Whether one of the checked batches, or of those above the high watermark, ends a
    transaction."""

    def see(self, header: BatchHeader) -> None:
        if not self.epochs or self.epochs[-1].epoch != header.leader_epoch:
            end_before = header.base_offset if self._checked_to is None else self._checked_to
            self.epochs.append(FoundEpoch(header.leader_epoch, end_before, header.base_offset))
        self._checked_to = header.next_offset
        if header.producer_id >= 0:
            self.has_producers = True
            self.see_marker(header)

    def see_marker(self, header: BatchHeader) -> None:
        if header.producer_id >= 0 and header.is_control:
            self.has_markers = True

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset


class RecoveryRequest(NamedTuple):
    """What the checkpoints and the caller know of a log that is opened."""

    disk: Disk
    directory: str
    start_offset: int  # the checkpointed log start offset; 0 if there is none
    recovery_point: int  # everything below it was on disk
    high_watermark: int  # the checkpointed high watermark; 0 if there is none
    clean_shutdown: bool
    index_interval_bytes: int
    now_ms: int

    @property
    def floor(self) -> int:
        """A cut below this offset cannot be a torn write."""
        return max(self.recovery_point, self.high_watermark)


# ------------------------------------------------------------------------------- segments


def recover_segments(request: RecoveryRequest) -> Steps[RecoveredSegments]:
    """Open all segments, check what a crash may have affected, and truncate a torn end.

    Everything that is kept is synced. Raises CorruptLogError, OSError.
    """
    bases, indexed = _clear_directory(request)
    if not bases:
        return _first_segment(request)
    segments: list[Segment] = []
    try:
        for base in bases:
            segment = Segment(request.disk, request.directory, base, created_ms=request.now_ms)
            segment.txn_index.is_present = base in indexed
            segments.append(segment)
            if len(segments) % _SEGMENTS_PER_TURN == 0:
                yield Turn.OVER
        # Otherwise each restart would put off the end of a segment whose records have no time.
        segments[-1].created_ms = min(segments[-1].written_ms(), request.now_ms)
        return (yield from _recover(request, segments))
    except BaseException:
        for segment in segments:
            segment.close()
        raise


def _recover(request: RecoveryRequest, segments: list[Segment]) -> Steps[RecoveredSegments]:
    for segment, following in itertools.pairwise(segments):
        segment.mark_unloaded(following.base_offset)
    first = _first_to_scan(request, segments)
    result = RecoveredSegments(segments, scanned_from=segments[first].base_offset)
    if request.clean_shutdown:
        yield from _load_clean(request, segments[-1])
        result.scanned_from = segments[-1].end_offset
    else:
        yield from _scan_all(request, result, first)
    end_offset = segments[-1].end_offset
    if end_offset < request.floor:
        raise segments[-1].corrupt(
            segments[-1].size,
            f"the log ends at offset {end_offset}, {request.floor} was on disk",
            end_offset,
        )
    yield from _check_above_high_watermark(request, result)
    if not request.clean_shutdown:
        yield from _sync_kept(request, segments[first:])
    if end_offset < request.start_offset:
        return _begin_again(request, segments)
    return result


def _clear_directory(request: RecoveryRequest) -> tuple[list[int], set[int]]:
    """The base offsets of the segments, in rising order, and of those with a transaction index.
    Removes the rest of interrupted deletions and compactions."""
    disk, directory = request.disk, request.directory
    finish_swap(disk, directory)
    _finish_cut(disk, directory)
    for name in disk.list(directory):
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
            disk.remove(f"{directory}/{name}")
    named = [(parse_file_name(name), name) for name in disk.list(directory)]
    bases = [key[0] for key, _ in named if key and key[1] == LOG_SUFFIX]
    known = {key[0] for key, _ in named if key and key[1] == SNAPSHOT_SUFFIX}
    # Segments that are wholly below the start go if a snapshot knows their producers. The others
    # stay until retention has made one.
    first = max(
        (each for each in bases if each <= request.start_offset and each in known), default=0
    )
    alive = [base for base in bases if base >= first]
    _check_none_is_lost(request, alive, [key[0] for key, _ in named if key and _is_index(key[1])])
    first = alive[0] if alive else 0
    for key, name in named:
        if key is None:
            continue
        base, suffix = key
        is_left_over = base < first if suffix == SNAPSHOT_SUFFIX else base not in alive
        if is_left_over:
            disk.remove(f"{directory}/{name}")
    return alive, {key[0] for key, _ in named if key and key[1] == TXN_INDEX_SUFFIX}


def _finish_cut(disk: Disk, directory: str) -> None:
    """Complete a truncation of several segments that was under way when the process ended."""
    cut = read_cut(disk, directory)
    if cut is None:
        return
    logger.warning("%s: completing the removal of all segments from %d on", directory, cut)
    for name in disk.list(directory):
        key = parse_file_name(name)
        if key is not None and key[0] >= cut and key[1] != SNAPSHOT_SUFFIX:
            disk.remove(f"{directory}/{name}")
    disk.sync_now(directory)
    disk.remove(cut_path(directory))
    disk.sync_now(directory)


def _is_index(suffix: str) -> bool:
    return suffix not in (LOG_SUFFIX, SNAPSHOT_SUFFIX)


def _check_none_is_lost(request: RecoveryRequest, alive: list[int], indexed: list[int]) -> None:
    """Raises CorruptLogError if a segment has an index and no log file. Such a file was lost, since
    a deletion removes the indexes first.

    Nothing else shows the loss. A log may begin above its checkpointed start (segments were deleted
    on a full disk, or the log was begun again), and after a clean shutdown recovery does not read
    segments.
    """
    for base in indexed:
        at = bisect_right(alive, base)
        if base not in alive and at < len(alive) and alive[at] > request.start_offset:
            raise CorruptLogError(
                f"{request.directory}/{file_name(base, LOG_SUFFIX)}",
                position=0,
                offset=base,
                reason="the file is missing, but its index exists",
            )


def _first_segment(request: RecoveryRequest) -> RecoveredSegments:
    """The first segment of a log without any file, which is new. Raises CorruptLogError if it had
    records."""
    if request.floor > request.start_offset:
        raise CorruptLogError(
            request.directory,
            position=0,
            offset=request.start_offset,
            reason=f"there is no segment, but offset {request.floor} was on disk",
        )
    base = request.start_offset
    segment = Segment(request.disk, request.directory, base, created_ms=request.now_ms)
    return RecoveredSegments([segment], scanned_from=base)


def _begin_again(request: RecoveryRequest, segments: list[Segment]) -> RecoveredSegments:
    """An empty segment at the log's start: everything left is below it, since records were deleted
    and then the end was lost."""
    for segment in reversed(segments):
        segment.delete()
    request.disk.sync_now(request.directory)
    return _first_segment(request._replace(recovery_point=0, high_watermark=0))


def _first_to_scan(request: RecoveryRequest, segments: list[Segment]) -> int:
    """The index of the segment that holds the recovery point. Those before it were on disk as a
    whole."""
    at = len(segments) - 1
    while at > 0 and segments[at].base_offset > request.recovery_point:
        at -= 1
    return at


def _load_clean(request: RecoveryRequest, segment: Segment) -> Steps[None]:
    segment.unseen_bytes = segment.size
    if not segment.load_indexes():
        logger.warning("the indexes of %s are missing or wrong: rebuilding them", segment.path)
        segment.reset_summary()
        pace = Pace(segment.path, _SCAN_BYTES)
        yield from pace.begin(0, segment.size)
        for position, header in segment.headers(0):
            size = header.size_bytes
            segment.note(
                header.last_offset,
                header.max_timestamp_ms,
                position,
                size,
                request.index_interval_bytes,
            )
            if (step := pace.at(position + size, segment.size)) is not None:
                yield step
    segment.load_tail()


def _check_above_high_watermark(request: RecoveryRequest, result: RecoveredSegments) -> Steps[None]:
    """Check every batch from the high watermark on in the segments that were not scanned whole:
    also after a clean shutdown, and whatever the recovery point is, since its checkpoint may have
    been lost. Raises CorruptLogError."""
    start = max(request.high_watermark, request.start_offset)
    for segment in result.segments:
        if segment.unseen_bytes == 0 or segment.end_offset <= start:
            continue
        position = segment.locate(start, wait=True)
        if isinstance(position, ColdRange):
            raise segment.corrupt(position.position, "the file ends inside a batch")
        pace = Pace(segment.path, _SCAN_BYTES)
        yield from pace.begin(position, segment.size)
        for at, header in segment.headers(position):
            if not check_crc(segment.file.read_now(at, header.size_bytes), 0, header):
                raise segment.corrupt(at, "the CRC does not match", header.base_offset)
            result.see_marker(header)
            if (step := pace.at(at + header.size_bytes, segment.size)) is not None:
                yield step
        if segment is not result.segments[-1]:
            segment.unload()


def _scan_all(request: RecoveryRequest, result: RecoveredSegments, first: int) -> Steps[None]:
    segments = result.segments
    for at in range(first, len(segments)):
        segment = segments[at]
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        start = segment.begin_scan(request.recovery_point if at == first else 0)
        if at == first:
            result.scanned_from = segment.end_offset
        cut = yield from _scan_segment(result, segment, start, request.index_interval_bytes)
        if cut is None and following is not None and segment.end_offset != following:
            cut = Cut(segment.size, segment.end_offset, f"the next segment begins at {following}")
        if cut is None:
            continue
        reason = yield from _why_corrupt(request, segments[at:], cut)
        if reason is not None:
            raise segment.corrupt(cut.position, f"{cut.reason}; {reason}", cut.offset)
        result.truncated_bytes = segment.size - cut.position
        logger.warning(
            "%s: %d bytes of a torn write truncated at byte %d (offset %d): %s",
            segment.path,
            result.truncated_bytes,
            cut.position,
            cut.offset,
            cut.reason,
        )
        _truncate(request, segments, at, cut)
        return


def _why_corrupt(request: RecoveryRequest, segments: list[Segment], cut: Cut) -> Steps[str | None]:
    """Why a cut in the first of ``segments`` is corruption. None if it is a torn write."""
    if cut.offset < request.recovery_point:
        return f"offset {request.recovery_point} and all before it was on disk"
    if cut.offset < request.high_watermark:
        return f"the high watermark was {request.high_watermark}"
    if _was_written(segments[0], cut.position):
        if is_batch(segments[0], cut.position, 0):
            return "the batch there is whole"
        if (yield from find_batch(segments[0], cut.position, cut.offset)) is not None:
            return "a whole batch stands behind it"
    # A segment is synced before the first byte of the next one is written.
    for segment in segments[1:]:
        if (yield from find_batch(segment, 0, cut.offset)) is not None:
            return f"a whole batch stands in {segment.path}"
    return None


def _was_written(segment: Segment, start: int) -> bool:
    """Whether all sectors of the batch at ``start``, a cut, were written: none is all zeroes,
    whether sectors are counted from the start of the batch or of the file."""
    end = start + HEADER_SIZE  # a batch whose length is lost may end there
    frame = segment.file.read_now(start, _FRAME.size)
    if len(frame) == _FRAME.size:
        (_, length) = _FRAME.unpack(frame)
        if start + length + PREFIX_SIZE <= segment.size:
            end = max(end, start + length + PREFIX_SIZE)
    sector = start - start % _SECTOR_BYTES
    while sector < min(end, segment.size):
        first = max(sector, start)
        part = segment.file.read_now(first, sector + _SECTOR_BYTES - first)
        # The first bytes of an offset are always zeroes. All of its bytes are zeroes only at offset
        # 0: that batch begins the file, and its first sector also contains the magic byte.
        if len(part) >= _BASE_OFFSET_SIZE and not any(part):
            return False
        sector += _SECTOR_BYTES
    return True


def _truncate(request: RecoveryRequest, segments: list[Segment], at: int, cut: Cut) -> None:
    for segment in reversed(segments[at + 1 :]):
        segment.delete()
        request.disk.sync_now(request.directory)
    del segments[at + 1 :]
    segments[at].truncate(cut.position)


def _sync_kept(request: RecoveryRequest, segments: list[Segment]) -> Steps[None]:
    """Sync everything that is kept. Writes of a killed process may be only in the page cache, and
    count only once they are on disk."""
    for segment in segments:
        yield Sync((segment.path,))
        if segment is not segments[-1]:
            _seal(segment)
            yield Sync(tuple(each for each in segment.index_paths() if request.disk.exists(each)))
            segment.unload()
    # A log without its topic id has never acknowledged a record.
    metadata = f"{request.directory}/{PARTITION_METADATA_FILE}"
    yield Sync(
        (
            *_flush_index_files(request, segments[-1]),
            *((metadata,) if request.disk.exists(metadata) else ()),
            request.directory,
            request.directory.rpartition("/")[0],
        )
    )


def _flush_index_files(request: RecoveryRequest, segment: Segment) -> list[str]:
    """The paths to sync. The files of the active segment may lack entries. If one ends within an
    entry, it is not believed. Raises OSError."""
    try:
        return segment.flush_index_files()
    except OSError as error:
        if not is_disk_full(error):
            raise
        logger.warning("the indexes of %s are not written yet: %s", segment.path, error)
    return [path for path in segment.index_paths() if request.disk.exists(path)]


def _seal(segment: Segment) -> None:
    """A full disk keeps no log from opening: its readers need no index file. Raises OSError."""
    try:
        segment.seal()
    except OSError as error:
        if not is_disk_full(error):
            raise
        logger.warning("the indexes of %s stay in memory only: %s", segment.path, error)
        segment.hold_indexes()


def _scan_segment(
    result: RecoveredSegments, segment: Segment, position: int, index_interval_bytes: int
) -> Steps[Cut | None]:
    """Check every batch from ``position`` on in full (frame, CRC, order) and rebuild its index
    entries.

    Returns the cut, if there is one. ``end_offset`` is then the offset of the cut.
    """
    while position < segment.size:
        size = min(_SCAN_BYTES, segment.size - position)
        yield Warm(segment.path, position, size)
        chunk = segment.file.read_now(position, size)
        at = count = 0
        while at + HEADER_SIZE <= len(chunk):
            checked = _check_batch(chunk, at, segment.end_offset)
            if isinstance(checked, str):
                return Cut(position + at, segment.end_offset, checked)
            if at + checked.size_bytes > len(chunk):
                break
            segment.note(
                checked.last_offset,
                checked.max_timestamp_ms,
                position + at,
                checked.size_bytes,
                index_interval_bytes,
            )
            result.see(checked)
            at += checked.size_bytes
            count += 1
            if count % BATCHES_PER_TURN == 0:
                yield Turn.OVER
        if at == 0:
            cut, size = _scan_large(result, segment, position, index_interval_bytes)
            if cut is not None:
                return cut
            at = size
        position += at
    return None


def _scan_large(
    result: RecoveredSegments, segment: Segment, position: int, interval: int
) -> tuple[Cut | None, int]:
    """Check a batch that is larger than a chunk, or that the end of the file cuts off."""
    end_offset = segment.end_offset
    head = segment.file.read_now(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return Cut(position, end_offset, "the file ends inside a header"), 0
    (_, length) = _FRAME.unpack_from(head)
    size = length + PREFIX_SIZE
    if size > segment.size - position:
        return Cut(position, end_offset, "the file ends inside a batch"), 0
    data = segment.file.read_now(position, size)
    checked = _check_batch(data, 0, end_offset)
    if isinstance(checked, str):
        return Cut(position, end_offset, checked), 0
    segment.note(checked.last_offset, checked.max_timestamp_ms, position, size, interval)
    result.see(checked)
    return None, size


def _check_batch(chunk: Buffer, at: int, end_offset: int) -> BatchHeader | str:
    """The header of the sound batch at ``at``, even if the chunk has only a part of it; or a reason
    why it is not sound."""
    try:
        header = read_header(chunk, at)
    except BatchError as error:
        return error.message
    if header.base_offset < end_offset:
        return f"offset {header.base_offset} after {end_offset - 1}"
    if at + header.size_bytes <= len(chunk) and not check_crc(chunk, at, header):
        return "the CRC does not match"
    return header


# ------------------------------------------------------------------------------- state


def recover_epochs(
    request: RecoveryRequest, recovered: RecoveredSegments
) -> Steps[tuple[LeaderEpochs, int]]:
    """The leader epochs: of the file below the recovery point, of the batches above it. And the
    offset where they begin.

    The file may begin above the checkpointed start of the log, if a crash came between the two
    writes. Then the log begins where its epochs do. This may be its end: retention has deleted all
    records, and no epoch is left.
    """
    epochs = LeaderEpochs(read_epochs(request.disk, f"{request.directory}/{LEADER_EPOCH_FILE}"))
    known = epochs.entries
    starts = dict(known)
    is_sure = bool(known) and known[0][1] <= max(request.start_offset, request.recovery_point)
    if not is_sure and recovered.scanned_from > request.start_offset:
        epochs.clear()
        end_before = request.start_offset

        def take(header: BatchHeader, _: object) -> None:
            nonlocal end_before
            found = FoundEpoch(header.leader_epoch, end_before, header.base_offset)
            epochs.assign_from_batch(found.epoch, found.start(starts), request.start_offset)
            end_before = header.next_offset

        yield from replay(recovered.segments, request.start_offset, take)
    elif not request.clean_shutdown:
        epochs.truncate_from(request.recovery_point)
        start_offset = max(request.start_offset, known[0][1] if is_sure else 0)
        for found in recovered.epochs:
            epochs.assign_from_batch(found.epoch, found.start(starts), start_offset)
    begin = known[0][1] if is_sure else epochs.start_offset
    epochs.truncate_from(recovered.end_offset)
    epochs.advance_start(request.start_offset)
    epochs.dirty = epochs.entries != known
    return epochs, min(begin, recovered.end_offset)
