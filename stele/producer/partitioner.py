"""Chooses the partition of a record, like Kafka's Java client.

The hash of a key is murmur2, so that a key belongs to one partition whichever client wrote it.
Records without a key go to one partition until that got a batch's worth of bytes, then to another
(KIP-794).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from stele.world import Rng

MURMUR_SEED: Final = 0x9747B28C
MURMUR_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit hash of ``data`` (Java's ``Utils.murmur2`` returns it signed)."""
    size = len(data)
    value = MURMUR_SEED ^ size
    words = size >> 2
    for word in struct.unpack_from(f"<{words}I", data):
        word = word * MURMUR_M & _MASK
        word = (word ^ (word >> 24)) * MURMUR_M & _MASK
        value = (value * MURMUR_M & _MASK) ^ word
    if tail := data[words * 4 :]:
        value = (value ^ int.from_bytes(tail, "little")) * MURMUR_M & _MASK
    value = (value ^ (value >> 13)) * MURMUR_M & _MASK
    return value ^ (value >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a key. It changes when the topic gets more partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


_SHORT_KEY_BYTES: Final = 256

_remembered = lru_cache(maxsize=8192)(partition_of)


def remembered_partition_of(key: bytes, partition_count: int) -> int:
    """``partition_of``, which costs some microseconds, remembered for many short keys. Longer ones
    would take all memory."""
    chosen = _remembered if len(key) <= _SHORT_KEY_BYTES else partition_of
    return chosen(key, partition_count)


class StickyPartitioner:
    """Chooses partitions for the records of one topic that have no key.

    All go to one partition until it got ``sticky_bytes`` (the producer's ``batch.size``), so that
    batches fill. The next partition is drawn uniformly from the others.
    """

    __slots__ = ("_current", "_left_bytes", "_rng", "_sticky_bytes")

    def __init__(self, rng: Rng, sticky_bytes: int) -> None:
        self._rng = rng
        self._sticky_bytes = sticky_bytes
        self._current = -1
        self._left_bytes = 0

    def choose(self, available: Sequence[int], size_bytes: int) -> int:
        """The partition for a record of ``size_bytes``, one of those that have a leader."""
        if self._left_bytes <= 0 or self._current not in available:
            self.move_on(available)
        self._left_bytes -= size_bytes
        return self._current

    def move_on(self, available: Sequence[int]) -> None:
        """Leave the current partition, if there is another, because its batch was sent when its
        linger time was over."""
        others = [partition for partition in available if partition != self._current]
        candidates = others or list(available)
        if not candidates:
            raise ValueError("no partition to choose from")
        self._current = candidates[self._rng.randrange(0, len(candidates))]
        self._left_bytes = self._sticky_bytes
