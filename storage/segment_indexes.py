"""The offset index and the time index of one segment: which parts are in memory, and whether they
are believed."""

from __future__ import annotations

import struct
from typing import Final, Protocol

from stele.wire.batch import MAGIC
from storage.cold_range import ColdRange
from storage.offset_index import OffsetIndex
from storage.time_index import TimeIndex
from world.disk import Disk, File

FRAME: Final = struct.Struct(">qi4xb6xi")
"""The beginning of a batch: base offset, length, magic, last offset delta."""


class IndexedFile(Protocol):
    """The segment that the indexes are of."""

    size: int

    @property
    def file(self) -> File: ...


class SegmentIndexes:
    """Index files are believed only through ``load``: a file may be absent, torn, or of another
    log, and bits of it may have changed."""

    __slots__ = ("_disk", "are_lost", "has_offsets", "has_times", "offsets", "times")

    def __init__(self, disk: Disk, path: str, time_path: str, base_offset: int) -> None:
        """Both are empty. They stay so for a new segment."""
        self._disk = disk
        self.offsets = OffsetIndex(path, base_offset)
        self.times = TimeIndex(time_path, base_offset)
        # Whether each is in memory. If not, it is only in its file.
        self.has_offsets = True
        self.has_times = True
        self.are_lost = False
        """The index files are missing or wrong: nothing is found until they are rebuilt."""

    @property
    def paths(self) -> list[str]:
        return [self.offsets.path, self.times.path]

    def reset(self) -> None:
        """Empty both, before all batches are noted again."""
        self.offsets.reset()
        self.times.reset()
        self.has_offsets = self.has_times = True
        self.are_lost = False

    # ------------------------------------------------------------------------- the files

    def load(self, segment: IndexedFile, *, with_times: bool, wait: bool) -> bool | ColdRange:
        """Bring the missing parts into memory. False: the indexes cannot be believed.

        The file of each index must be a sequence of possible entries, and the last must not be
        below the first. The last entry of the offset index must lead to a batch that ends with its
        offset. ``wait``: wait for the device. Otherwise this may return what must be warmed first,
        and the time index must be in memory or not be asked for.
        """
        if self.are_lost:
            return False
        if self.has_offsets and (self.has_times or not with_times):
            return True
        if not self.has_offsets:
            if wait:
                found: bool | ColdRange = self.offsets.load(self._disk, segment.size)
            else:
                warm = self.offsets.load_warm(self._disk, segment.size)
                found = ColdRange(*warm) if isinstance(warm, tuple) else warm
            if isinstance(found, ColdRange) or not found:
                return found
        if with_times and not self.has_times and not self.times.load(self._disk):
            return False
        self.has_offsets = True
        self.has_times = self.has_times or with_times
        return self._lead_to_batch(segment)

    def load_anew(self, segment: IndexedFile) -> bool:
        """As ``load``, of both and from their files, whatever is in memory."""
        self.has_offsets = self.has_times = self.are_lost = False
        is_believed = self.load(segment, with_times=True, wait=True) is True
        self.has_offsets = self.has_times = True
        return is_believed

    def _lead_to_batch(self, segment: IndexedFile) -> bool:
        known, position = self.offsets.last
        if (known, position) == (-1, 0):
            return True
        if position <= 0:
            return False
        frame = segment.file.read_now(position, FRAME.size)
        if len(frame) < FRAME.size:
            return False
        base, _, magic, delta = FRAME.unpack(frame)
        return bool(magic == MAGIC and base + delta == known)

    def load_proven(self, segment: IndexedFile, proven_offset: int) -> int | None:
        """After a crash: load both and forget the entries from ``proven_offset`` on. Returns the
        position of the batch of the last entry; None: no entry is left, or none is believed.

        An index file only grows, and its truncations are on disk before other batches take the
        place of removed ones. So a crash leaves entries that are right, or zeroes, which do not
        rise.
        """
        if not (self.load_anew(segment) and self.offsets.rises and self.times.rises):
            return None
        self.offsets.truncate_to_offset(proven_offset)
        known, position = self.offsets.last
        if not self._lead_to_batch(segment):
            return None
        self.times.truncate_to_offset(known + 1)  # without an entry that leaves no time either
        return position if self.times.last is not None else None

    def flush(self) -> None:
        """Write the entries in memory to the files. Raises OSError."""
        if self.has_offsets:
            self.offsets.flush(self._disk)
        if self.has_times:
            self.times.flush(self._disk)

    def flush_existing(self) -> list[str]:
        """Update the files that exist. Returns their paths, which must be synced. Raises
        OSError."""
        changed = []
        for index in (self.offsets, self.times):
            if index.dirty and self._disk.exists(index.path):
                index.flush(self._disk)
                changed.append(index.path)
        return changed

    def hold(self) -> None:
        """The indexes of a sealed segment that could not be written stay in memory, and the
        remainders of their files are removed. The next process would take a part of a time index
        for the whole, and would miss the segment's newest records. A missing index is rebuilt when
        it is asked for. Raises OSError."""
        for index in (self.offsets, self.times):
            if index.dirty:
                index.drop_file(self._disk)

    def unload(self) -> None:
        """Free the memory of the indexes that are in their files."""
        if not self.offsets.dirty:
            self.offsets.reset()
            self.has_offsets = False
        if not self.times.dirty:
            self.times.reset()
            self.has_times = False

    # ------------------------------------------------------------------------ truncation

    def truncate_to_position(self, segment: IndexedFile, position: int) -> bool:
        """Forget the batches of the offset index from a position on. False: the index did not rise,
        so that a wrong entry is its last now."""
        self.offsets.truncate_to_position(position)
        return self._lead_to_batch(segment)

    def cut_files(self) -> None:
        """Before the log grows again, the index files on disk must have no entry that it does not
        have: recovery relies on entries below the recovery point. They may lack entries. So nothing
        is written to them, since the disk may be full. Raises OSError."""
        for index in (self.offsets, self.times):
            if index.dirty and self._disk.exists(index.path):
                index.cut_file(self._disk)
                self._disk.sync_now(index.path)
