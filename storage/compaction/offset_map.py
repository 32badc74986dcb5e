"""The latest offset of each key, in memory of a fixed size."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Final

SLOT_BYTES: Final = 24
_WORD: Final = 8
_MARGIN: Final = 1.1  # the next lower prime is nearer
_LEAST_SLOTS: Final = 16


class OffsetMap:
    """A hash table of digests. It does not hold the keys.

    A digest has 128 bits, so two keys among 2**32 have the same one with a probability of 2**-65.
    A slot has 24 bytes: the digest in two words, and the offset plus 1; 0 marks an empty slot.
    Collisions are resolved by double hashing. So the number of slots is a prime, and ``capacity``
    keys leave some slots empty.
    """

    __slots__ = ("_highs", "_lows", "_offsets", "_slots", "capacity", "count")

    def __init__(self, size_bytes: int, load_factor: float, key_limit: int) -> None:
        """At most ``size_bytes``, and no more than ``key_limit`` keys need."""
        needed = int(key_limit / load_factor * _MARGIN) + _LEAST_SLOTS
        wanted = min(size_bytes // SLOT_BYTES, needed)
        self._slots = _prime_upto(max(wanted, 3))
        self.capacity = max(1, min(int(self._slots * load_factor), self._slots - 1))
        """The most keys that the map takes."""
        self.count = 0
        self._lows = array("Q", [0]) * self._slots
        self._highs = array("Q", [0]) * self._slots
        self._offsets = array("Q", [0]) * self._slots

    def put(self, key: bytes, offset: int) -> bool:
        """Note that ``key`` has a record at ``offset``. Offsets are put in rising order. False if
        the map is full and does not know the key."""
        digest = blake2b(key, digest_size=16).digest()
        low = int.from_bytes(digest[:_WORD], "little")
        high = int.from_bytes(digest[_WORD:], "little")
        at = self._find(low, high)
        if not self._offsets[at]:
            if self.count >= self.capacity:
                return False
            self.count += 1
            self._lows[at], self._highs[at] = low, high
        self._offsets[at] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """The latest offset of ``key``; -1 if the map does not know it."""
        digest = blake2b(key, digest_size=16).digest()
        low = int.from_bytes(digest[:_WORD], "little")
        return self._offsets[self._find(low, int.from_bytes(digest[_WORD:], "little"))] - 1

    def _find(self, low: int, high: int) -> int:
        """The slot of a digest, or the empty one into which it goes."""
        slots, lows, highs, offsets = self._slots, self._lows, self._highs, self._offsets
        at = low % slots
        step = 0
        while offsets[at] and (lows[at] != low or highs[at] != high):
            if not step:
                step = high % (slots - 1) + 1
            at = (at + step) % slots
        return at


def _prime_upto(number: int) -> int:
    """The greatest prime that is not above ``number``, which is 3 or more."""
    candidate = number if number % 2 else number - 1
    while not _is_prime(candidate):
        candidate -= 2
    return candidate


def _is_prime(number: int) -> bool:
    divisor = 3
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 2
    return True
