"""Which letters of a partition were sent back, as the metadata of a committed offset.

A redrive with a filter leaves letters behind. They stay due, so one offset cannot say what is done.
The committed offset is that of the first letter that is not done, and its metadata say which
letters behind it are done. Example: letters 0 to 9, and a filter that leaves 3 and 7. The committed
offset is 3, and its metadata say: 4 to 6 and 8 to 9.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from bisect import bisect_right
from typing import Final

from stele.errors import ApiError, ErrorCode

METADATA_BYTES_MOST: Final = 4096
"""The default of the brokers' ``offset.metadata.max.bytes``."""

_FORM: Final = "redrive-1:"


class PartitionProgress:
    """The offsets of a partition that are done: sent back, of other groups, or without a record."""

    def __init__(self, first_undone: int = 0) -> None:
        self._first_undone = first_undone
        # First and last offsets: ascending, above _first_undone, with a gap between any two.
        self._done: list[tuple[int, int]] = []

    @property
    def first_undone(self) -> int:
        return self._first_undone

    def is_done(self, offset: int) -> bool:
        if offset < self._first_undone:
            return True
        at = bisect_right(self._done, (offset, _FAR)) - 1
        return at >= 0 and offset <= self._done[at][1]

    def add(self, first: int, last: int) -> None:
        """Offsets ``first`` to ``last`` are done. Nothing is if ``last`` is below ``first``."""
        if last < first or last < self._first_undone:
            return
        low = bisect_right(self._done, (first, _FAR))
        if low and self._done[low - 1][1] >= first - 1:
            low -= 1
        high = bisect_right(self._done, (last + 1, _FAR))
        if low < high:
            first = min(first, self._done[low][0])
            last = max(last, self._done[high - 1][1])
        self._done[low:high] = [(first, last)]
        if first <= self._first_undone:
            self._first_undone = last + 1
            del self._done[0]

    def metadata(self) -> str:
        """Empty if nothing above ``first_undone`` is done. It may be too long to be committed."""
        if not self._done:
            return ""
        numbers = bytearray()
        before = self._first_undone
        for first, last in self._done:
            _put(numbers, first - before)
            _put(numbers, last - first)
            before = last + 1
        packed = zlib.compress(bytes(numbers), 9)
        return _FORM + base64.b64encode(packed).decode()

    @classmethod
    def of(cls, offset: int, metadata: str) -> PartitionProgress:
        """What was committed. Raises ApiError INVALID_REQUEST if a redrive has not written it."""
        progress = cls(offset)
        if not metadata:
            return progress
        try:
            if not metadata.startswith(_FORM):
                raise ValueError(metadata)
            packed = base64.b64decode(metadata.removeprefix(_FORM), validate=True)
            numbers = _numbers(zlib.decompress(packed))
        except (ValueError, binascii.Error, zlib.error):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the metadata {metadata!r} of the committed offset {offset} are not those of a "
                "redrive: another program has committed to the group of the redrive",
            ) from None
        before = offset
        for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
            first = before + gap
            progress.add(first, first + length)
            before = first + length + 1
        return progress


_FAR: Final = 1 << 63


def _put(out: bytearray, number: int) -> None:
    """As an unsigned varint."""
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> list[int]:
    """Raises ValueError."""
    numbers: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            numbers.append(value)
            value = shift = 0
    if shift or len(numbers) % 2:
        raise ValueError("the metadata end within a range")
    return numbers
