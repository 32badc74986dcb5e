"""The sparse index from offset to file position of one segment: Kafka's ``.index``.

On disk: 8-byte entries, big-endian, offset relative to the segment's base (i32) and position
(i32). An entry names the *last* offset of the batch that starts at the position. In memory: two
arrays to bisect. New entries are written at ``flush``; recovery makes them anew from the log, so
nothing waits for them.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt
from typing import Final

from stele.world import Buffer
from storage.index_file import write_entries
from world.disk import Disk, ReadFailedError

ENTRY_SIZE: Final = 8
_ENTRY = struct.Struct(">ii")


class OffsetIndex:
    """Entries rise strictly in offset and in position."""

    __slots__ = ("_flushed", "base_offset", "dirty", "offsets", "path", "positions")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.offsets = array("i")  # relative to base_offset
        self.positions = array("i")  # parallel to offsets
        self._flushed = 0  # the file's first so many entries are those in memory
        self.dirty = True  # the file is absent, or differs behind these

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Note that the batch ending at ``last_offset`` starts at ``position``."""
        self.offsets.append(last_offset - self.base_offset)
        self.positions.append(position)
        self.dirty = True

    def entry_before(self, offset: int) -> tuple[int, int]:
        """(last offset, position) of a batch that ends below ``offset``: begin the search there.

        (-1, 0) if none is known: begin at the beginning.
        """
        at = bisect_left(self.offsets, offset - self.base_offset) - 1
        return (self.base_offset + self.offsets[at], self.positions[at]) if at >= 0 else (-1, 0)

    @property
    def last(self) -> tuple[int, int]:
        """(last offset, position) of the last entry; (-1, 0) without one."""
        if not self.offsets:
            return -1, 0
        return self.base_offset + self.offsets[-1], self.positions[-1]

    @property
    def rises(self) -> bool:
        """Whether entries rise, as they must; zeroes that were never written do not."""
        if self.positions and self.positions[0] <= 0:
            return False  # the first batch is never entered
        offsets, positions = self.offsets, self.positions
        return all(map(lt, offsets, offsets[1:])) and all(map(lt, positions, positions[1:]))

    def truncate_to_offset(self, offset: int) -> None:
        """Forget batches that end at or behind ``offset``. The file follows at ``flush``."""
        self._truncate(bisect_left(self.offsets, offset - self.base_offset))

    def last_position_upto(self, position: int) -> int:
        """The greatest known batch start that is not behind ``position``; 0 if none."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def truncate_to_position(self, position: int) -> None:
        """Forget batches that start at or behind ``position``. The file follows at ``flush``."""
        self._truncate(bisect_left(self.positions, position))

    def _truncate(self, keep: int) -> None:
        if keep < len(self.offsets):
            del self.offsets[keep:]
            del self.positions[keep:]
            self._flushed = min(self._flushed, keep)
            self.dirty = True

    def flush(self, disk: Disk) -> None:
        """Bring the file in line with memory. Raises OSError; may be tried again."""
        if not self.dirty:
            return
        write_entries(disk, self.path, self._flushed * ENTRY_SIZE, self._encode(self._flushed))
        self._flushed = len(self.offsets)
        self.dirty = False

    def _encode(self, start: int) -> bytes:
        pairs = array("i", [0]) * (2 * (len(self.offsets) - start))
        pairs[0::2] = self.offsets[start:]
        pairs[1::2] = self.positions[start:]
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    def load(self, disk: Disk, log_size: int) -> bool:
        """Read the file. False, and empty, if it is absent, unreadable, or of another log."""
        self.reset()
        try:
            data = disk.read_file(self.path)
        except (FileNotFoundError, ReadFailedError):
            return False
        return self._take(data, log_size)

    def load_warm(self, disk: Disk, log_size: int) -> bool | tuple[str, int, int]:
        """As ``load``, but without waiting: path, position and size of what has to be warmed."""
        self.reset()
        try:
            file = disk.open(self.path)
        except FileNotFoundError:
            return False
        try:
            size = file.size
            data = file.read(0, size) if size else b""
        except ReadFailedError:
            return False
        finally:
            file.close()
        if data is None or len(data) < size:
            return self.path, 0, size
        return self._take(data, log_size)

    def _take(self, data: Buffer, log_size: int) -> bool:
        if len(data) % ENTRY_SIZE:
            return False
        pairs = array("i")
        pairs.frombytes(data)
        if sys.byteorder == "little":
            pairs.byteswap()
        offsets, positions = pairs[0::2], pairs[1::2]
        if offsets and not (0 <= offsets[0] <= offsets[-1] and positions[-1] < log_size):
            return False
        self.offsets, self.positions = offsets, positions
        self._flushed = len(offsets)
        self.dirty = False
        return True

    def reset(self) -> None:
        """Empty it; the next flush rewrites the file."""
        self.offsets = array("i")
        self.positions = array("i")
        self._flushed = 0
        self.dirty = True


def decode_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of every whole entry."""
    whole = len(data) - len(data) % ENTRY_SIZE
    return [(base_offset + offset, at) for offset, at in _ENTRY.iter_unpack(data[:whole])]
