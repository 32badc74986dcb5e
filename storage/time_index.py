"""The sparse index from timestamp to offset of one segment: Kafka's ``.timeindex``.

On disk it has 12-byte entries, big-endian: a timestamp in milliseconds (i64) and an offset relative
to the segment's base (i32). An entry says that no record up to this offset has a greater timestamp.
Entries stay packed in memory, so that loading is one read without a loop. A sealed segment's index
is searched in its file (``FileTimeIndex``), which takes 18 reads in a quarter of a million entries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import lt
from typing import Final, NamedTuple

from stele.wire.batch import NO_TIMESTAMP
from storage.index_file import remove_file, write_entries
from storage.offset_index import RELATIVE_OFFSET_MAX
from world.disk import Disk, File, ReadFailedError

ENTRY_SIZE: Final = 12
_ENTRY = struct.Struct(">qi")


class TimeEntry(NamedTuple):
    """One entry. ``offset`` is relative to the segment's base."""

    timestamp_ms: int
    offset: int

    @property
    def is_possible(self) -> bool:
        return self.timestamp_ms >= NO_TIMESTAMP and self.offset >= 0


class TimeIndex:
    """The entries of the active segment. Timestamps and offsets rise strictly."""

    __slots__ = ("_entries", "_flushed", "base_offset", "dirty", "path")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._entries = bytearray()
        self._flushed = 0  # the first so many entries of the file are right
        self.dirty = True  # the file is absent, or differs after these

    def __len__(self) -> int:
        return len(self._entries) // ENTRY_SIZE

    def _at(self, index: int) -> TimeEntry:
        return TimeEntry._make(_ENTRY.unpack_from(self._entries, index * ENTRY_SIZE))

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add the greatest timestamp so far and its offset, unless the last entry already has
        it, or no entry can name the offset."""
        relative = offset - self.base_offset
        if relative > RELATIVE_OFFSET_MAX:
            return
        if self._entries:
            last = _ENTRY.unpack_from(self._entries, len(self._entries) - ENTRY_SIZE)
            if timestamp_ms <= last[0] or relative <= last[1]:
                return
        self._entries += _ENTRY.pack(timestamp_ms, relative)
        self.dirty = True

    def offset_before(self, timestamp_ms: int) -> int:
        """The offset from which a search for ``timestamp_ms`` begins: all records up to it are
        older."""
        return self.base_offset + _offset_before(self._at, len(self), timestamp_ms)

    @property
    def last(self) -> tuple[int, int] | None:
        """The greatest timestamp and its offset, from the last entry; None if there is none."""
        if not self._entries:
            return None
        entry = self._at(len(self) - 1)
        return entry.timestamp_ms, self.base_offset + entry.offset

    @property
    def rises(self) -> bool:
        """Whether the entries rise. Zeroes of sectors that were never written do not."""
        fields = struct.unpack(">" + "qi" * len(self), self._entries)
        times, offsets = fields[0::2], fields[1::2]
        return all(map(lt, times, times[1:])) and all(map(lt, offsets, offsets[1:]))

    def truncate_to_offset(self, offset: int) -> None:
        """Forget entries at or above ``offset``. ``flush`` updates the file."""
        relative = offset - self.base_offset
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).offset < relative:
                low = middle + 1
            else:
                high = middle
        if low < len(self):
            del self._entries[low * ENTRY_SIZE :]
            self._flushed = min(self._flushed, low)
            self.dirty = True

    def cut_file(self, disk: Disk) -> None:
        """Leave in the file only entries that are in memory, too. Raises OSError."""
        write_entries(disk, self.path, self._flushed * ENTRY_SIZE, b"")

    def drop_file(self, disk: Disk) -> None:
        """Remove the file. The next ``flush`` writes all of it. Raises OSError."""
        remove_file(disk, self.path)
        self._flushed = 0
        self.dirty = True

    def flush(self, disk: Disk) -> None:
        """Write to the file what differs in memory. Raises OSError; then it may be tried again."""
        if not self.dirty:
            return
        start = self._flushed * ENTRY_SIZE
        write_entries(disk, self.path, start, bytes(self._entries[start:]))
        self._flushed = len(self)
        self.dirty = False

    def load(self, disk: Disk) -> bool:
        """Read the file. False, with an empty index, if it is absent, unreadable or not rising."""
        self.reset()
        try:
            data = disk.read_file(self.path)
        except (FileNotFoundError, ReadFailedError):
            return False
        self._entries = bytearray(data)
        falls = len(self) > 1 and not _rise(self._at(0), self._at(len(self) - 1))
        is_possible = not len(self) or self._at(0).is_possible
        if falls or not is_possible or len(data) % ENTRY_SIZE:
            self.reset()
            return False
        self._flushed = len(self)
        self.dirty = False
        return True

    def reset(self) -> None:
        """Empty the index. The next ``flush`` rewrites the file."""
        self._entries = bytearray()
        self._flushed = 0
        self.dirty = True


class ColdIndexError(Exception):
    """A part of the file is not in memory: warm the file, then search again."""

    def __init__(self, size: int) -> None:
        super().__init__("not in memory")
        self.size = size
        """The size of the whole file, in bytes."""


class WrongIndexError(Exception):
    """The file is absent, unreadable or not a sequence of entries."""


class FileTimeIndex:
    """The entries of a sealed segment, read one by one from the file.

    Use it as a context manager. Raises WrongIndexError, ColdIndexError, OSError.
    """

    __slots__ = ("_base_offset", "_count", "_file", "_range")

    def __init__(self, disk: Disk, path: str, base_offset: int, end_offset: int) -> None:
        try:
            self._file: File = disk.open(path)
        except FileNotFoundError:
            raise WrongIndexError from None
        self._base_offset = base_offset
        self._range = end_offset - base_offset
        self._count = self._file.size // ENTRY_SIZE

    def __enter__(self) -> FileTimeIndex:
        if self._file.size % ENTRY_SIZE:
            self._file.close()
            raise WrongIndexError
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _at(self, index: int) -> TimeEntry:
        try:
            data = self._file.read(index * ENTRY_SIZE, ENTRY_SIZE)
        except ReadFailedError:
            raise WrongIndexError from None
        if data is None or len(data) < ENTRY_SIZE:
            raise ColdIndexError(self._file.size)
        entry = TimeEntry._make(_ENTRY.unpack(data))
        if not entry.is_possible or entry.offset >= self._range:
            raise WrongIndexError
        return entry

    @property
    def last(self) -> tuple[int, int] | None:
        """The greatest timestamp and its offset, from the last entry; None if there is none."""
        if self._count == 0:
            return None
        entry = self._at(self._count - 1)
        return entry.timestamp_ms, self._base_offset + entry.offset

    def offset_before(self, timestamp_ms: int) -> int:
        """As in ``TimeIndex``."""
        return self._base_offset + _offset_before(self._at, self._count, timestamp_ms)


def _rise(earlier: TimeEntry, later: TimeEntry) -> bool:
    return earlier.timestamp_ms < later.timestamp_ms and earlier.offset < later.offset


def _offset_before(at: Callable[[int], TimeEntry], count: int, timestamp_ms: int) -> int:
    """The offset of the last entry below ``timestamp_ms``. 0, the beginning of the segment, if
    there is none, or if the search meets impossible entries, or entries that do not rise: such an
    index proves nothing."""
    low, high = 0, count  # entries below `low` are older, entries from `high` on are not
    below: TimeEntry | None = None
    above: TimeEntry | None = None
    while low < high:
        middle = (low + high) // 2
        entry = at(middle)
        falls = (below is not None and not _rise(below, entry)) or (
            above is not None and not _rise(entry, above)
        )
        if falls or not entry.is_possible:
            return 0
        if entry.timestamp_ms < timestamp_ms:
            low, below = middle + 1, entry
        else:
            high, above = middle, entry
    return 0 if below is None else below.offset


def decode_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp in ms, offset) of every whole entry."""
    whole = len(data) - len(data) % ENTRY_SIZE
    return [(stamp, base_offset + offset) for stamp, offset in _ENTRY.iter_unpack(data[:whole])]
