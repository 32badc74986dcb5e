"""Slots of digests with their latest offsets: a hash table of a fixed size."""

from __future__ import annotations

from array import array
from typing import Final

SLOT_BYTES: Final = 24


class Slots:
    """A slot has 24 bytes: the digest in two words, and the offset plus 1; 0 marks an empty slot.
    Collisions are resolved by double hashing. So the number of slots is a prime, and ``capacity``
    digests leave some slots empty.
    """

    __slots__ = ("_highs", "_lows", "_number", "_offsets", "capacity", "count")

    def __init__(self, number: int, capacity: int) -> None:
        self._number = number
        self.capacity = capacity
        """The most digests that these slots take."""
        self.count = 0
        self._lows = array("Q", [0]) * number
        self._highs = array("Q", [0]) * number
        self._offsets = array("Q", [0]) * number

    def put(self, low: int, high: int, offset: int) -> bool:
        """Note the offset of a digest. False if the slots are full and do not have it."""
        at = self._find(low, high)
        if not self._offsets[at]:
            if self.count >= self.capacity:
                return False
            self.count += 1
            self._lows[at], self._highs[at] = low, high
        self._offsets[at] = offset + 1
        return True

    def get(self, low: int, high: int) -> int:
        """The offset that was put last for a digest; -1 if there is none."""
        return self._offsets[self._find(low, high)] - 1

    def _find(self, low: int, high: int) -> int:
        """The slot of a digest, or the empty one into which it goes."""
        number, lows, highs, offsets = self._number, self._lows, self._highs, self._offsets
        at = low % number
        step = 0
        while offsets[at] and (lows[at] != low or highs[at] != high):
            if not step:
                step = high % (number - 1) + 1
            at = (at + step) % number
        return at
