"""The offset up to which all transactions of a partition are decided."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Ended(NamedTuple):
    """A transaction with its end marker in the log."""

    first_offset: int
    marker_offset: int


class Undecided:
    """The ended transactions whose markers are appended but not committed.

    A marker above the high watermark may still vanish, and with it the outcome of the transaction.
    So such a transaction is as undecided as an open one.
    """

    __slots__ = ("ended",)

    def __init__(self) -> None:
        # In the order of the markers. Both offsets rise: see ``add``.
        self.ended: deque[Ended] = deque()

    def add(self, first_offset: int, marker_offset: int) -> None:
        """A marker was appended at the log's end. An earlier marker is dropped if its transaction
        began later: it is committed before this one."""
        while self.ended and self.ended[-1].first_offset >= first_offset:
            self.ended.pop()
        self.ended.append(Ended(first_offset, marker_offset))

    def first_offset(self, high_watermark: int, default: int) -> int:
        """The first offset of the earliest of these transactions; ``default`` if there is none.
        Transactions whose markers are below the high watermark are forgotten."""
        while self.ended and self.ended[0].marker_offset < high_watermark:
            self.ended.popleft()
        return min(default, self.ended[0].first_offset) if self.ended else default

    def truncated(self, end_offset: int) -> None:
        """The log was truncated: transactions whose markers are gone are open again, or gone."""
        while self.ended and self.ended[-1].marker_offset >= end_offset:
            self.ended.pop()
