"""The latest offset of each key, in memory of a fixed size."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from stele.wire import native
from stele.wire.batch_errors import CorruptBatchError
from storage.compaction.slots import SLOT_BYTES, Slots
from storage.compaction.stored_records import stored_records

_WORD: Final = 8
_MARGIN: Final = 1.1  # the next lower prime is nearer
_LEAST_SLOTS: Final = 16
_OFFSET_MAX: Final = (1 << 63) - 1


class KeptRecords(NamedTuple):
    """The records of a body that stay."""

    body: bytes
    record_count: int
    has_tombstone: bool
    greatest_delta_ms: int
    """The greatest timestamp delta; 0 if there is no record."""


class OffsetMap:
    """A hash table of digests. It does not hold the keys.

    A digest has 128 bits, so two keys among 2**32 have the same one with a probability of 2**-65.
    """

    __slots__ = ("_compiled", "_slots", "capacity")

    def __init__(self, size_bytes: int, load_factor: float, key_limit: int) -> None:
        """At most ``size_bytes``, and no more than ``key_limit`` keys need."""
        needed = int(key_limit / load_factor * _MARGIN) + _LEAST_SLOTS
        wanted = min(size_bytes // SLOT_BYTES, needed)
        number = _prime_upto(max(wanted, 3))
        self.capacity = max(1, min(int(number * load_factor), number - 1))
        """The most keys that the map takes."""
        self._compiled: native.Slots | None = None
        self._slots: Slots | native.Slots
        if native.NATIVE is None:
            self._slots = Slots(number, self.capacity)
        else:
            self._slots = self._compiled = native.NATIVE.Slots(number, self.capacity)

    @property
    def count(self) -> int:
        return self._slots.count

    def put(self, key: bytes, offset: int) -> bool:
        """Note that ``key`` has a record at ``offset``. Offsets are put in rising order. False if
        the map is full and does not know the key."""
        return self._slots.put(*_digest(key), offset)

    def get(self, key: bytes) -> int:
        """The latest offset of ``key``; -1 if the map does not know it."""
        return self._slots.get(*_digest(key))

    def put_keys(self, data: bytes, count: int, base_offset: int) -> bool:
        """Put the keys of a batch's body into the map. False if it became full on the way. Keys
        that it got by then do no harm: their records stay, and older ones of the same keys may go.

        Raises CorruptBatchError.
        """
        if self._compiled is not None:
            took_all = self._compiled.put_keys(data, count, base_offset)
            if took_all is not None:
                return took_all
        for record in stored_records(data, count):
            if record.key is None:
                continue
            offset = base_offset + record.offset_delta
            if not 0 <= offset <= _OFFSET_MAX:
                raise CorruptBatchError(
                    f"a record of the batch at {base_offset} has offset {offset}"
                )
            if not self.put(record.key, offset):
                return False
        return True

    def kept_records(
        self, data: bytes, count: int, base_offset: int, *, drop_tombstones: bool
    ) -> KeptRecords:
        """The records of a batch's body that have a key, and no later record of it in the map.
        Raises CorruptBatchError."""
        if self._compiled is not None:
            kept = self._compiled.kept_records(data, count, base_offset, drop_tombstones)
            if kept is not None:
                return KeptRecords._make(kept)
        records = [
            each
            for each in stored_records(data, count)
            if each.key is not None
            and base_offset + each.offset_delta >= self.get(each.key)
            and not (drop_tombstones and each.is_tombstone)
        ]
        return KeptRecords(
            b"".join([data[each.start : each.end] for each in records]),
            len(records),
            any(each.is_tombstone for each in records),
            max((each.timestamp_delta_ms for each in records), default=0),
        )


def _digest(key: bytes) -> tuple[int, int]:
    """The two words of a key's digest."""
    digest = blake2b(key, digest_size=2 * _WORD).digest()
    return int.from_bytes(digest[:_WORD], "little"), int.from_bytes(digest[_WORD:], "little")


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
