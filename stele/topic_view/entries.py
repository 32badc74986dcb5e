"""The keys of a topic view with their values, and when each of them ends."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

_SPARE_TIMES: Final = 1024
"""Up to so many times of entries that are gone may be in the heap before it is made anew."""


class Reason(enum.Enum):
    """Why a key left a view."""

    EXPIRED = "expired"
    DELETED = "deleted"
    """The topic has a tombstone for it."""
    LOST = "lost"
    """The partition was read again from its start, and no longer has the key: retention removed
    it, the topic was made anew, or an unclean election lost the record."""


class Evicted(NamedTuple):
    """A key that left a view, with its last value."""

    key: bytes
    value: bytes
    reason: Reason


class _Entry(NamedTuple):
    value: bytes
    partition: int
    reading: int
    expires_at_ms: int | None
    number: int  # of the record, in the order in which records were applied


class Entries:
    """The values of keys, from their records in the order in which they were applied: the last one
    counts.

    An expired entry is hidden, but it is held until ``expire`` takes it out.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}
        # (time, number of the record, key) of each entry that expires. An entry that was replaced
        # or removed leaves its time here. The number in the entry tells such times apart.
        self._times: list[tuple[int, int, bytes]] = []
        self._readings: dict[int, int] = {}  # by partition: how often it was begun again
        self._applied = 0

    def __len__(self) -> int:
        """The number of keys, including those that have expired and are still held."""
        return len(self._entries)

    @property
    def spare_times(self) -> int:
        """How many times of entries that are gone are held."""
        return len(self._times) - sum(e.expires_at_ms is not None for e in self._entries.values())

    def get(self, key: bytes, now_ms: int) -> bytes | None:
        entry = self._entries.get(key)
        return None if entry is None or _is_over(entry, now_ms) else entry.value

    def items(self, now_ms: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values in the order in which the keys came. The entries must not change
        meanwhile."""
        for key, entry in self._entries.items():
            if not _is_over(entry, now_ms):
                yield key, entry.value

    def put(self, key: bytes, value: bytes, partition: int, expires_at_ms: int | None) -> None:
        self._applied += 1
        reading = self._readings.get(partition, 0)
        self._entries[key] = _Entry(value, partition, reading, expires_at_ms, self._applied)
        if expires_at_ms is not None:
            heapq.heappush(self._times, (expires_at_ms, self._applied, key))
            if len(self._times) > 2 * len(self._entries) + _SPARE_TIMES:
                self._drop_spare_times()

    def delete(self, key: bytes) -> Evicted | None:
        """A tombstone. None: the key was not there."""
        entry = self._entries.pop(key, None)
        return None if entry is None else Evicted(key, entry.value, Reason.DELETED)

    def expire(self, now_ms: int, limit: int) -> list[Evicted]:
        """Take out up to ``limit`` entries whose time has come, in the order of their times."""
        evicted: list[Evicted] = []
        while self._times and self._times[0][0] <= now_ms and len(evicted) < limit:
            _, number, key = heapq.heappop(self._times)
            entry = self._entries.get(key)
            if entry is not None and entry.number == number:
                del self._entries[key]
                evicted.append(Evicted(key, entry.value, Reason.EXPIRED))
        return evicted

    def begin_again(self, partition: int) -> None:
        """All records of the partition will be applied once more, from its start. What it held
        stays until ``settle``."""
        self._readings[partition] = self._readings.get(partition, 0) + 1

    def settle(self, partition: int) -> list[Evicted]:
        """The partition was read to its end: take out the entries that it no longer has."""
        reading = self._readings.get(partition, 0)
        gone = [
            key
            for key, entry in self._entries.items()
            if entry.partition == partition and entry.reading < reading
        ]
        return [Evicted(key, self._entries.pop(key).value, Reason.LOST) for key in gone]

    def _drop_spare_times(self) -> None:
        self._times = [
            (entry.expires_at_ms, entry.number, key)
            for key, entry in self._entries.items()
            if entry.expires_at_ms is not None
        ]
        heapq.heapify(self._times)


def _is_over(entry: _Entry, now_ms: int) -> bool:
    return entry.expires_at_ms is not None and entry.expires_at_ms <= now_ms
