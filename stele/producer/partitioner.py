"""Which partition a record goes to: as Kafka's Java client decides it.

A key's hash is murmur2, so that one key lands on one partition whichever client wrote it. Records
without a key stick to one partition for a batch's worth of bytes, then go to another (KIP-794).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from stele.world import Rng

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of ``data``, unsigned (Java's ``Utils.murmur2`` gives it signed)."""
    size = len(data)
    value = _SEED ^ size
    words = size >> 2
    for word in struct.unpack_from(f"<{words}I", data):
        word = word * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        value = (value * _M & _MASK) ^ word
    if tail := data[words * 4 :]:
        value = (value ^ int.from_bytes(tail, "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a key. It changes when the topic gets more partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Chooses for the keyless records of one topic.

    All go to one partition until ``sticky_bytes`` (the producer's ``batch.size``) went there, so
    that batches fill; the next partition is drawn uniformly from the others.
    """

    __slots__ = ("_current", "_left_bytes", "_rng", "_sticky_bytes")

    def __init__(self, rng: Rng, sticky_bytes: int) -> None:
        self._rng = rng
        self._sticky_bytes = sticky_bytes
        self._current = -1
        self._left_bytes = 0

    def choose(self, available: Sequence[int], size_bytes: int) -> int:
        """The partition for a record of ``size_bytes``, out of those that have a leader."""
        if self._left_bytes <= 0 or self._current not in available:
            self.move_on(available)
        self._left_bytes -= size_bytes
        return self._current

    def move_on(self, available: Sequence[int]) -> None:
        """Leave the current partition, if there is another: its batch was sent for its time."""
        others = [partition for partition in available if partition != self._current]
        candidates = others or list(available)
        if not candidates:
            raise ValueError("no partition to choose from")
        self._current = candidates[self._rng.randrange(0, len(candidates))]
        self._left_bytes = self._sticky_bytes
