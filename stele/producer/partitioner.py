"""Chooses the partition of a record, like Kafka's Java client.

The hash of a key is murmur2, so that a key belongs to one partition whichever client wrote it.
Records without a key go to one partition until that got a batch's worth of bytes, then to another
(KIP-794).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from stele.wire import native
from stele.world import Rng

MURMUR_SEED: Final = 0x9747B28C
MURMUR_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit hash of ``data`` (Java's ``Utils.murmur2`` returns it signed)."""
    if native.NATIVE is not None:
        return native.NATIVE.murmur2(data)
    words = len(data) >> 2
    return _finished(_mixed(MURMUR_SEED ^ len(data), data, 0, words), data[words * 4 :])


def _mixed(value: int, data: bytes, offset: int, words: int) -> int:
    """The hash after so many more words, which begin at an offset."""
    for word in struct.unpack_from(f"<{words}I", data, offset):
        word = word * MURMUR_M & _MASK
        word = (word ^ (word >> 24)) * MURMUR_M & _MASK
        value = (value * MURMUR_M & _MASK) ^ word
    return value


def _finished(value: int, tail: bytes) -> int:
    """The hash after the last bytes, less than a word."""
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * MURMUR_M & _MASK
    value = (value ^ (value >> 13)) * MURMUR_M & _MASK
    return value ^ (value >> 15)


async def murmur2_in_turns(data: bytes) -> int:
    """``murmur2`` of a long key, one slice of ``LONG_KEY_BYTES`` in a turn of the event loop."""
    value = MURMUR_SEED ^ len(data)
    offset, end = 0, len(data) & ~3
    while end - offset > LONG_KEY_BYTES:
        value = _mixed(value, data, offset, LONG_KEY_BYTES >> 2)
        offset += LONG_KEY_BYTES
        await asyncio.sleep(0)
    return _finished(_mixed(value, data, offset, (end - offset) >> 2), data[end:])


def partition_of_hash(key_hash: int, partition_count: int) -> int:
    """The partition of a key with this ``murmur2``. It changes when the topic gets more
    partitions."""
    return (key_hash & 0x7FFFFFFF) % partition_count


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a key."""
    return partition_of_hash(murmur2(key), partition_count)


LONG_KEY_BYTES: Final = 16 << 10
"""To hash this much takes about a millisecond. Longer keys are hashed in turns."""

_KEY_COST_BYTES: Final = 64  # a key costs as much beside its bytes


async def partitions_of(keys: Iterable[bytes], partition_count: int) -> list[int]:
    """The partition of each key, in turns of the event loop."""
    partitions = []
    turn_bytes = 0
    for key in keys:
        turn_bytes += len(key) + _KEY_COST_BYTES
        if turn_bytes > LONG_KEY_BYTES:
            turn_bytes = len(key) % LONG_KEY_BYTES
            await asyncio.sleep(0)
        if len(key) > LONG_KEY_BYTES:
            partitions.append(partition_of_hash(await murmur2_in_turns(key), partition_count))
        else:
            partitions.append(partition_of(key, partition_count))
    return partitions


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

    def stay(self, available: Sequence[int]) -> tuple[int | None, int]:
        """The partition that ``choose`` chooses next, and until how many more bytes. The last
        record may go beyond. None: ``choose`` moves on next."""
        if self._left_bytes <= 0 or self._current not in available:
            return None, 0
        return self._current, self._left_bytes

    def choose(self, available: Sequence[int], size_bytes: int) -> int:
        """The partition for records of together ``size_bytes``. It has a leader."""
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
