"""The bytes that a read would have to wait for."""

from __future__ import annotations

from typing import NamedTuple


class ColdRange(NamedTuple):
    """Bytes that are not in memory: await ``PartitionLog.warm``, then read again.

    An empty range means that the segment's indexes are missing or wrong and must be rebuilt.
    """

    path: str
    position: int
    size: int
