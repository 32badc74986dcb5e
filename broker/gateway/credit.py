"""How many records a thin client will take. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Grant(NamedTuple):
    """Credit for more records."""

    records: int
    bytes: int | None


class Credit:
    """The records that a client has granted and not got. More may be sent until ``is_spent``."""

    __slots__ = ("_bytes", "_records")

    def __init__(self) -> None:
        self._records = 0
        # None: no grant has spoken of bytes. Negative: the last record was larger than what was
        # left, and later grants pay for it.
        self._bytes: int | None = None

    @property
    def records(self) -> int:
        """The most records that may be sent now."""
        return 0 if self.is_spent else self._records

    @property
    def is_spent(self) -> bool:
        return self._records == 0 or (self._bytes is not None and self._bytes <= 0)

    def grant(self, records: int, bytes_: int | None) -> None:
        self._records += records
        if bytes_ is not None:
            self._bytes = (self._bytes or 0) + bytes_

    def spend(self, sizes: Sequence[int]) -> int:
        """Records of these sizes wait to be sent. Returns how many of them may be, from the first
        one on, and takes them from the credit."""
        count = min(len(sizes), self._records)
        if self._bytes is not None:
            left = self._bytes
            for number, size in enumerate(sizes[:count]):
                if left <= 0:
                    count = number
                    break
                left -= size
            self._bytes = left
        self._records -= count
        return count
