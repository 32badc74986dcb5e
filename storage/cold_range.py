"""The bytes that a read would have to wait for."""

from __future__ import annotations

from typing import Final, NamedTuple

COLD_BYTES: Final = 1 << 20
"""A read gets so many bytes at a time of what was not in memory, however many it asks for, or else
one whole batch. So a backfill neither fills the device's queue before a sync nor makes long turns
of the event loop."""


class ColdRange(NamedTuple):
    """Bytes that are not in memory: await ``PartitionLog.warm``, then read again.

    An empty range means that the segment's indexes are missing or wrong and must be rebuilt.
    """

    path: str
    position: int
    size: int
