"""One segment of a log: a file of record batches and its two indexes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from stele.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    BatchError,
    BatchHeader,
    batches,
    check_crc,
    read_header,
)
from stele.world import Buffer
from storage.cold_range import COLD_BYTES, ColdRange
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.segment_indexes import FRAME, SegmentIndexes
from storage.segment_names import DELETED_SUFFIX, segment_paths, txn_index_path
from storage.time_index import ColdIndexError, FileTimeIndex, TimeIndex, WrongIndexError
from storage.txn_index import TxnIndex
from world.disk import Disk, File, ReadFailedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CHUNK_BYTES: Final = 4096  # bytes per read of a search for one batch
_SCAN_BYTES: Final = 1 << 20  # bytes per read of a walk over all batches


class SegmentRead(NamedTuple):
    """Whole batches, and the position after them."""

    data: Buffer
    next_offset: int
    next_position: int


class Segment:
    """The batches from ``base_offset`` up to ``end_offset``.

    Only a log's last segment is written to. A sealed segment has neither a file handle nor an index
    in memory until it is read. Its time index is never loaded but searched in the file.
    """

    __slots__ = (
        "_disk",
        "_file",
        "_indexes",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "damage",
        "end_offset",
        "first_timestamp_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "path",
        "size",
        "sync_begun_at",
        "txn_index",
        "unseen_bytes",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, created_ms: int, suffix: str = ""
    ) -> None:
        """Opens the log file, and creates it if it is absent. ``suffix``: of the files of a segment
        that is not part of a log. Raises OSError."""
        self.path, index_path, time_index_path = segment_paths(directory, base_offset, suffix)
        self.base_offset = base_offset
        self.end_offset = base_offset  # after the last record; set by append or loading
        self.created_ms = created_ms  # after a restart: when the segment was last written to
        self.first_timestamp_ms = NO_TIMESTAMP  # the timestamp of the first batch
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset  # the last offset of the batch with that timestamp
        self.bytes_since_index = 0
        self.unseen_bytes = 0
        """Each read checks this many bytes at the beginning of the file, since recovery has not.
        (Later bytes were checked in memory before they were written.)"""
        self._disk = disk
        self._file: File | None = disk.open(self.path, create=True)
        self.size = self._file.size  # once loaded, the file has only whole batches
        self.sync_begun_at = self.size  # its size when the last sync began
        self._indexes = SegmentIndexes(disk, index_path, time_index_path, base_offset)
        self.txn_index = TxnIndex(txn_index_path(directory, base_offset, suffix))
        self.damage: CorruptLogError | ReadFailedError | None = None
        """The error that prevented the rebuilding of the indexes. Each look-up raises it."""

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.base_offset}..{self.end_offset}, {self.size} bytes)"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    @property
    def index_entries(self) -> int:
        return len(self._indexes.offsets.positions)

    def index_paths(self) -> list[str]:
        return self._indexes.paths

    @property
    def indexes_lost(self) -> bool:
        """Whether the index files are missing or wrong: nothing is found until ``reindex`` rebuilds
        them."""
        return self._indexes.are_lost

    # ----------------------------------------------------------------------------- writing

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Append bytes. Returns their position. After an OSError the file is as it was before.

        If that cannot be restored, the second error is raised: then the log must go offline.
        """
        try:
            position = self.file.append(buffers)
        except OSError:
            self.file.truncate(self.size)
            raise
        self.size = self.file.size
        return position

    @property
    def intact(self) -> bool:
        """Whether the file has exactly the noted batches."""
        return self._file is not None and self._file.size == self.size

    def note(
        self, last_offset: int, max_timestamp_ms: int, position: int, size: int, interval: int
    ) -> None:
        """Note a batch at ``position`` in indexes and summary."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp_ms = max_timestamp_ms
        if self.bytes_since_index > interval:
            indexes = self._indexes
            indexes.offsets.append(last_offset, position)
            indexes.times.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size
        self.end_offset = last_offset + 1

    def seal(self) -> None:
        """End the appends: complete the time index and write both indexes. Raises OSError."""
        self._indexes.times.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        self.flush_indexes()

    def hold_indexes(self) -> None:
        """After ``seal`` has failed. Raises OSError."""
        self._indexes.hold()

    def flush_indexes(self) -> None:
        self._indexes.flush()

    def unload(self) -> None:
        """Close the handle of a sealed segment, and drop its indexes if they are in their files."""
        self.close()
        self._indexes.unload()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _paths(self) -> list[str]:
        """Where the files are. The log file is last: a deletion removes the indexes first."""
        return [*self.index_paths(), self.txn_index.path, self.path]

    def delete(self) -> None:
        """Remove the files. The directory is not synced."""
        self.close()
        for path in self._paths():
            if self._disk.exists(path):
                self._disk.remove(path)

    def set_aside(self) -> list[str]:
        """Rename the files, to be removed later. Returns the new paths. The directory is not
        synced. Raises OSError: then it may be called again."""
        self.close()
        aside = []
        for path in self._paths():
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED_SUFFIX)
            aside.append(path + DELETED_SUFFIX)
        return aside

    def truncate(self, position: int) -> None:
        """Truncate the file at the start of a batch, sync it, and adapt indexes and summary."""
        self.damage = None
        self.load_now()
        self.file.truncate(position)
        self.size = position
        self._disk.sync_now(self.path)
        if not self._indexes.truncate_to_position(self, position):
            logger.warning("the offset index of %s is wrong: rebuilding it", self.path)
            self._rebuild_indexes()
        self.load_tail()
        self._indexes.cut_files()

    def flush_index_files(self) -> list[str]:
        """Update the index files that exist. Returns their paths, which must be synced."""
        return self._indexes.flush_existing()

    # ----------------------------------------------------------------------------- loading

    def load_now(self) -> None:
        """Load both indexes, waiting for the device. Rebuilds them if they are wrong."""
        if self._indexes.load(self, with_times=True, wait=True) is not True:
            logger.warning("the indexes of %s are missing or wrong: rebuilding them", self.path)
            end_offset = self.end_offset  # in a sealed segment it may be above the last record
            self._rebuild_indexes()
            self.end_offset = end_offset

    def warm_now(self, cold: ColdRange) -> None:
        """Bring a cold range of a read into memory, waiting for the device."""
        if cold.path == self.path and cold.size:
            self.file.read_now(cold.position, cold.size)
        else:
            self.load_now()

    def _load(self, *, wait: bool) -> ColdRange | None:
        """Load the offset index. Returns what must be warmed first, if anything."""
        if self._indexes.has_offsets and not self._indexes.are_lost:
            return None
        if wait:
            self.load_now()
            return None
        found = self._indexes.load(self, with_times=False, wait=False)
        if isinstance(found, ColdRange):
            return found
        return None if found else self.lost_indexes()

    def lost_indexes(self) -> ColdRange:
        """Note that the indexes are wrong; rebuilding them takes a while in a large segment.

        Raises CorruptLogError or ReadFailedError if the segment itself was found faulty before.
        """
        if self.damage is not None:
            raise self.damage
        self._indexes.are_lost = True
        return ColdRange(self.path, 0, 0)

    def lose_indexes(self) -> None:
        """The file of an index cannot be read."""
        self._indexes.are_lost = True

    def beside(self) -> Segment:
        """A second ``Segment`` of the same file, with its own handle and indexes, for a scan."""
        directory = self.path.rpartition("/")[0]
        return Segment(self._disk, directory, self.base_offset, created_ms=self.created_ms)

    def take_indexes(self, scanned: Segment) -> None:
        """Take over the indexes and the summary of ``scanned``, a scan of the same file."""
        self._indexes = scanned._indexes
        self.max_timestamp_ms = scanned.max_timestamp_ms
        self.max_timestamp_offset = scanned.max_timestamp_offset
        self.first_timestamp_ms = scanned.first_timestamp_ms
        self.bytes_since_index = scanned.bytes_since_index

    def mark_unloaded(self, end_offset: int) -> None:
        """At start: treat the segment as sealed. It ends where the next one begins."""
        self.end_offset = end_offset
        self.unseen_bytes = self.size
        self.close()
        self._indexes.has_offsets = self._indexes.has_times = False

    def load_indexes(self) -> bool:
        """Read the index files. False if they do not fit the log and must be rebuilt."""
        return self._indexes.load_anew(self)

    def begin_scan(self, proven_offset: int) -> int:
        """Prepare to note all batches from a position on, which it returns, and forget what was
        known of them. All bytes below ``proven_offset`` were on disk, so an index entry below it
        leads to the batch that it names."""
        position = self._indexes.load_proven(self, proven_offset)
        last = self._indexes.times.last
        if position is not None and last is not None:
            self.max_timestamp_ms, self.max_timestamp_offset = last
            known, _ = self._indexes.offsets.last
            self.end_offset = self.header_at(position, known).base_offset
            self._read_first_timestamp()
            self.bytes_since_index = 0
            self.unseen_bytes = position
            return position
        self.reset_summary()
        self.unseen_bytes = 0
        return 0

    def _read_first_timestamp(self) -> None:
        self.first_timestamp_ms = NO_TIMESTAMP
        if self.size:
            self.first_timestamp_ms = self.header_at(0, self.base_offset).max_timestamp_ms

    def reset_summary(self) -> None:
        """Forget indexes and summary before all batches are noted again."""
        self._indexes.reset()
        self.end_offset = self.base_offset
        self.first_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.bytes_since_index = 0

    def _rebuild_indexes(self) -> None:
        self.reset_summary()
        interval = LogConfig().index_interval_bytes
        for at, header in self.headers(0):
            self.note(header.last_offset, header.max_timestamp_ms, at, header.size_bytes, interval)

    def load_tail(self) -> None:
        """Find end offset and greatest timestamp, and forget what the time index says of offsets
        from the end on.

        Raises CorruptLogError if the file does not end with a whole batch.
        """
        _, start = self._indexes.offsets.last
        self.end_offset = self.base_offset
        self.max_timestamp_ms, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        for _, header in self.headers(start):
            self.end_offset = header.next_offset
            if header.max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = header.max_timestamp_ms
                self.max_timestamp_offset = header.last_offset
        times = self._indexes.times
        # Entries of removed batches would hide those of the batches that stay.
        times.truncate_to_offset(self.end_offset)
        if times.last is not None and times.last[0] >= self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = times.last
        self.bytes_since_index = self.size - start
        self._read_first_timestamp()

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from there on, waiting. Raises CorruptLogError."""
        chunk: Buffer = b""
        start = position  # the position of the chunk
        while position < self.size:
            if position + HEADER_SIZE > start + len(chunk):
                start = position
                chunk = self.file.read_now(start, min(_SCAN_BYTES, self.size - start))
            header = self._header(chunk, position - start, position)
            yield position, header
            position += header.size_bytes

    def header_at(self, position: int, offset: int) -> BatchHeader:
        """The header of the batch at ``position``, waiting. ``offset``: one of its offsets, for the
        error. Raises CorruptLogError."""
        return self._header(self.file.read_now(position, HEADER_SIZE), 0, position, offset)

    def _header(
        self, chunk: Buffer, at: int, position: int, offset: int | None = None
    ) -> BatchHeader:
        try:
            header = read_header(chunk, at)
        except BatchError as error:
            raise self.corrupt(position, str(error), offset) from error
        if position + header.size_bytes > self.size:
            raise self.corrupt(position, "the file ends inside a batch", offset)
        return header

    def corrupt(self, position: int, reason: str, offset: int | None = None) -> CorruptLogError:
        return CorruptLogError(
            self.path,
            position=position,
            offset=self.end_offset if offset is None else offset,
            reason=reason,
        )

    # ----------------------------------------------------------------------------- times

    def largest_timestamp(self) -> int | ColdRange:
        """The greatest timestamp of the records in milliseconds; -1 if there is none. A sealed
        segment has it in the last entry of its time index: one read."""
        if self.max_timestamp_ms == NO_TIMESTAMP and self.size:
            found = self._of_times(lambda times: times.last)
            if isinstance(found, ColdRange):
                return found
            if found is not None:
                self.max_timestamp_ms, self.max_timestamp_offset = found
        return self.max_timestamp_ms

    def written_ms(self) -> int:
        """When it was last written to: the date of records without a time. Raises OSError."""
        return self._disk.modified_ms(self.path)

    def offset_before_time(self, timestamp_ms: int) -> int | ColdRange:
        """An offset below which every record is older than ``timestamp_ms``."""
        return self._of_times(lambda times: times.offset_before(timestamp_ms))

    def _of_times(self, ask: Callable[[TimeIndex | FileTimeIndex], T]) -> T | ColdRange:
        if self.indexes_lost:
            return self.lost_indexes()
        if self._indexes.has_times:
            return ask(self._indexes.times)
        path = self._indexes.times.path
        try:
            with FileTimeIndex(self._disk, path, self.base_offset, self.end_offset) as times:
                return ask(times)
        except ColdIndexError as cold:
            return ColdRange(path, 0, cold.size)
        except WrongIndexError:
            return self.lost_indexes()

    # ----------------------------------------------------------------------------- reading

    def locate(self, offset: int, *, wait: bool = False) -> int | ColdRange:
        """The position of the first batch that ends at or above ``offset``, or else ``size``.

        ``wait``: wait for the device instead of returning a cold range.
        """
        cold = self._load(wait=wait)
        if cold is not None:
            return cold
        known, position = self._indexes.offsets.entry_before(offset)
        is_entry = (known, position) != (-1, 0)
        if is_entry and not (known >= self.base_offset and 0 < position < self.size):
            return self._locate_without_indexes(offset, wait)
        while position < self.size:
            chunk = (self.file.read_now if wait else self.file.read)(position, _CHUNK_BYTES)
            if chunk is None or len(chunk) < min(FRAME.size, self.size - position):
                return ColdRange(self.path, position, _CHUNK_BYTES)
            at = 0
            while at + FRAME.size <= len(chunk):
                base, length, magic, delta = FRAME.unpack_from(chunk, at)
                if is_entry and (base + delta != known or magic != MAGIC):
                    return self._locate_without_indexes(offset, wait)
                if magic != MAGIC or length < HEADER_SIZE - PREFIX_SIZE or delta < 0:
                    raise self.corrupt(position + at, "no batch stands here", offset)
                if base + delta >= offset:
                    return position + at
                is_entry = False
                at += length + PREFIX_SIZE
            if is_entry:
                return self._locate_without_indexes(offset, wait)
            if at == 0:
                raise self.corrupt(position, "the file ends inside a batch", offset)
            position += at
        return self.size

    def _locate_without_indexes(self, offset: int, wait: bool) -> int | ColdRange:
        cold = self.lost_indexes()
        return self.locate(offset, wait=True) if wait else cold

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        limit_offset: int,
        min_one_batch: bool,
        position: int | None = None,
    ) -> SegmentRead | ColdRange:
        """Whole batches from the one that holds ``offset`` on, all below ``limit_offset``.

        At most ``max_bytes``, but with ``min_one_batch`` at least one batch. ``position`` is the
        position of the first batch if the caller knows it. Raises CorruptLogError, OSError.
        """
        if position is None:
            located = self.locate(offset)
            if isinstance(located, ColdRange):
                return located
            position = located
        found = self._read(offset, max_bytes, limit_offset, min_one_batch, position)
        if position < self.unseen_bytes and not isinstance(found, ColdRange):
            self._check(found.data, position)
        return found

    def _check(self, data: Buffer, position: int) -> None:
        at, offset = 0, self.base_offset
        try:
            for at, header in batches(data):
                offset = header.base_offset
                if not check_crc(data, at, header):
                    raise self.corrupt(position + at, "the CRC does not match", offset)
        except BatchError as error:
            raise self.corrupt(position + at, str(error), offset) from error

    def _read(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        min_one_batch: bool,
        position: int,
    ) -> SegmentRead | ColdRange:
        wanted = min(max(max_bytes, HEADER_SIZE), self.size - position)
        if wanted < HEADER_SIZE:
            raise self.corrupt(
                position, f"offset {offset} should stand here, the file ends", offset
            )
        data = self.file.read(position, wanted)
        piece = min(wanted, COLD_BYTES)
        if data is None or len(data) < FRAME.size:
            return ColdRange(self.path, position, piece)
        base, length, magic, delta = FRAME.unpack_from(data)
        if magic != MAGIC or base + delta < offset:
            raise self.corrupt(position, f"offset {offset} does not stand here", offset)
        first_size = length + PREFIX_SIZE
        if base + delta >= limit_offset or (first_size > max_bytes and not min_one_batch):
            return SegmentRead(b"", offset, position)
        if first_size > min(len(data), max_bytes):
            if first_size > self.size - position:
                raise self.corrupt(position, "the file ends inside a batch", offset)
            data = self.file.read(position, first_size)
            if data is None or len(data) < first_size:
                return ColdRange(self.path, position, max(first_size, piece))
            return SegmentRead(data, base + delta + 1, position + first_size)
        return self._cut(data, position, limit_offset, max_bytes)

    def _cut(
        self, data: Buffer, position: int, limit_offset: int, max_bytes: int
    ) -> SegmentRead | ColdRange:
        """The whole batches of ``data`` below ``limit_offset``. The first is known to be one.

        This examines only the headers after the last index entry.
        """
        if len(data) > max_bytes:
            data = memoryview(data)[:max_bytes]
        available = len(data)
        if limit_offset >= self.end_offset and position + available == self.size:
            return SegmentRead(data, self.end_offset, self.size)
        cold = self._load(wait=False)
        if cold is not None:
            return cold
        at = self._indexes.offsets.last_position_upto(position + available - FRAME.size)
        if limit_offset < self.end_offset:
            at = min(at, self._indexes.offsets.entry_before(limit_offset)[1])
        at = max(at - position, 0)
        try:
            if at <= available - FRAME.size:  # else the index does not rise
                return self._walk(data, position, at, limit_offset)
        except CorruptLogError:
            if at == 0:
                raise
        # The index or the batch to which it leads is wrong. A search without index tells which.
        found = self._walk(data, position, 0, limit_offset)
        self.lost_indexes()
        return found

    def _walk(self, data: Buffer, position: int, at: int, limit_offset: int) -> SegmentRead:
        """The batches from ``at`` in ``data`` to the last whole one below ``limit_offset``."""
        available = len(data)
        next_offset = -1
        while at + FRAME.size <= available:
            base, length, magic, delta = FRAME.unpack_from(data, at)
            sound = magic == MAGIC and length >= HEADER_SIZE - PREFIX_SIZE and delta >= 0
            if not sound or not self.base_offset <= base < self.end_offset:
                raise self.corrupt(position + at, "no batch stands here", next_offset)
            if at + length + PREFIX_SIZE > available or base + delta >= limit_offset:
                if next_offset < 0:
                    next_offset = base
                break
            at += length + PREFIX_SIZE
            next_offset = base + delta + 1
        return SegmentRead(memoryview(data)[:at], next_offset, position + at)
