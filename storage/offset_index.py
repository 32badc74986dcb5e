"""The sparse index from offset to file position of one segment: Kafka's ``.index``.

On disk it has 8-byte entries, big-endian: the offset relative to the segment's base (i32) and the
position (i32). An entry names the *last* offset of the batch that starts at the position. In memory
there are two arrays to bisect. ``flush`` writes new entries. Recovery rebuilds them from the log,
so nothing waits for them to be on disk.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt
from typing import Final

from stele.world import Buffer
from storage.index_file import remove_file, write_entries
from world.disk import Disk, ReadFailedError

ENTRY_SIZE: Final = 8
RELATIVE_OFFSET_MAX: Final = 0x7FFFFFFF  # an entry has 32 bits for an offset
_ENTRY = struct.Struct(">ii")


class OffsetIndex:
    """The entries of one segment. Offsets and positions rise strictly."""

    __slots__ = ("_flushed", "base_offset", "dirty", "offsets", "path", "positions")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.offsets = array("i")  # relative to base_offset
        self.positions = array("i")  # parallel to offsets
        self._flushed = 0  # the first so many entries of the file are right
        self.dirty = True  # the file is absent, or differs after these

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry: the batch that ends with ``last_offset`` starts at ``position``. An offset
        that no entry can name gets none: a search for it begins at an earlier one."""
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return
        self.offsets.append(last_offset - self.base_offset)
        self.positions.append(position)
        self.dirty = True

    def entry_before(self, offset: int) -> tuple[int, int]:
        """(last offset, position) of a batch that ends below ``offset``, from which a search
        begins. (-1, 0), the beginning of the segment, if there is no such entry."""
        at = bisect_left(self.offsets, offset - self.base_offset) - 1
        return (self.base_offset + self.offsets[at], self.positions[at]) if at >= 0 else (-1, 0)

    @property
    def last(self) -> tuple[int, int]:
        """(last offset, position) of the last entry; (-1, 0) if there is none."""
        if not self.offsets:
            return -1, 0
        return self.base_offset + self.offsets[-1], self.positions[-1]

    @property
    def rises(self) -> bool:
        """Whether the entries rise. Zeroes of sectors that were never written do not."""
        if self.positions and self.positions[0] <= 0:
            return False  # the first batch never has an entry
        offsets, positions = self.offsets, self.positions
        return all(map(lt, offsets, offsets[1:])) and all(map(lt, positions, positions[1:]))

    def truncate_to_offset(self, offset: int) -> None:
        """Forget batches that end at or above ``offset``. ``flush`` updates the file."""
        self._truncate(bisect_left(self.offsets, offset - self.base_offset))

    def last_position_upto(self, position: int) -> int:
        """The greatest position of an entry that is not above ``position``; 0 if there is none."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def truncate_to_position(self, position: int) -> None:
        """Forget batches that start at or above ``position``. ``flush`` updates the file."""
        self._truncate(bisect_left(self.positions, position))

    def _truncate(self, keep: int) -> None:
        if keep < len(self.offsets):
            del self.offsets[keep:]
            del self.positions[keep:]
            self._flushed = min(self._flushed, keep)
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
        """Read the file. False, with an empty index, if it is absent, unreadable or belongs to
        another log."""
        self.reset()
        try:
            data = disk.read_file(self.path)
        except (FileNotFoundError, ReadFailedError):
            return False
        return self._take(data, log_size)

    def load_warm(self, disk: Disk, log_size: int) -> bool | tuple[str, int, int]:
        """As ``load``, but without waiting for the device. May return bytes to warm first: path,
        position and size."""
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
        if offsets and not (
            0 <= offsets[0] <= offsets[-1] and 0 < positions[0] <= positions[-1] < log_size
        ):
            return False
        self.offsets, self.positions = offsets, positions
        self._flushed = len(offsets)
        self.dirty = False
        return True

    def reset(self) -> None:
        """Empty the index. The next ``flush`` rewrites the file."""
        self.offsets = array("i")
        self.positions = array("i")
        self._flushed = 0
        self.dirty = True


def decode_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of every whole entry."""
    whole = len(data) - len(data) % ENTRY_SIZE
    return [(base_offset + offset, at) for offset, at in _ENTRY.iter_unpack(data[:whole])]
