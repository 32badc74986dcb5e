"""The sparse index from timestamp to offset of one segment: Kafka's ``.timeindex``.

On disk: 12-byte entries, big-endian, timestamp in milliseconds (i64) and offset relative to the
segment's base (i32). An entry says: no record up to this offset is younger than the timestamp.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from stele.world import Disk, ReadFailedError
from storage.index_file import write_entries

ENTRY_SIZE: Final = 12
_ENTRY = struct.Struct(">qi")


class TimeIndex:
    """Entries rise strictly in timestamp and in offset."""

    __slots__ = ("_flushed", "base_offset", "dirty", "offsets", "path", "timestamps_ms")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.timestamps_ms = array("q")
        self.offsets = array("i")  # relative to base_offset, parallel to timestamps_ms
        self._flushed = 0  # the file's first so many entries are those in memory
        self.dirty = True  # the file is absent, or differs behind these

    def __len__(self) -> int:
        return len(self.offsets)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Note the greatest timestamp so far and where it stands; nothing if it is not news."""
        if self.timestamps_ms and timestamp_ms <= self.timestamps_ms[-1]:
            return
        if self.offsets and offset - self.base_offset <= self.offsets[-1]:
            return
        self.timestamps_ms.append(timestamp_ms)
        self.offsets.append(offset - self.base_offset)
        self.dirty = True

    def offset_before(self, timestamp_ms: int) -> int:
        """Every record older than ``timestamp_ms``'s entry ends here: begin the search there."""
        at = bisect_right(self.timestamps_ms, timestamp_ms - 1) - 1
        return self.base_offset + (self.offsets[at] if at >= 0 else 0)

    @property
    def last(self) -> tuple[int, int] | None:
        """The greatest timestamp and its offset."""
        if not self.offsets:
            return None
        return self.timestamps_ms[-1], self.base_offset + self.offsets[-1]

    def truncate_to_offset(self, offset: int) -> None:
        """Forget entries at or above ``offset``. The file follows at ``flush``."""
        keep = bisect_left(self.offsets, offset - self.base_offset)
        if keep < len(self.offsets):
            del self.offsets[keep:]
            del self.timestamps_ms[keep:]
            self._flushed = min(self._flushed, keep)
            self.dirty = True

    def flush(self, disk: Disk) -> None:
        """Bring the file in line with memory. Raises OSError; may be tried again."""
        if not self.dirty:
            return
        start = self._flushed
        pairs = zip(self.timestamps_ms[start:], self.offsets[start:], strict=True)
        entries = b"".join(_ENTRY.pack(*pair) for pair in pairs)
        write_entries(disk, self.path, start * ENTRY_SIZE, entries)
        self._flushed = len(self.offsets)
        self.dirty = False

    def load(self, disk: Disk) -> bool:
        """Read the file. False, and empty, if it is absent, unreadable or not rising."""
        self.reset()
        try:
            data = disk.read_file(self.path)
        except (FileNotFoundError, ReadFailedError):
            return False
        if len(data) % ENTRY_SIZE:
            return False
        for timestamp_ms, offset in _ENTRY.iter_unpack(data):
            self.timestamps_ms.append(timestamp_ms)
            self.offsets.append(offset)
        if any(not a < b for a, b in zip(self.offsets, self.offsets[1:], strict=False)):
            self.reset()
            return False
        self._flushed = len(self.offsets)
        self.dirty = False
        return True

    def reset(self) -> None:
        """Empty it; the next flush rewrites the file."""
        self.timestamps_ms = array("q")
        self.offsets = array("i")
        self._flushed = 0
        self.dirty = True


def decode_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp_ms, offset) of every whole entry."""
    whole = len(data) - len(data) % ENTRY_SIZE
    return [(stamp, base_offset + offset) for stamp, offset in _ENTRY.iter_unpack(data[:whole])]
