"""Which leader epoch began at which offset: Kafka's leader epoch cache (KIP-101, KIP-279, KIP-320).

Kept in memory and written at checkpoints: the batches carry their epoch, so recovery makes anew
what lies above the recovery point, and the file only has to be right below it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNDEFINED = -1


class EpochEndOffset(NamedTuple):
    """An epoch and the offset after its last record; both -1: not known here."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Epochs rise strictly; start offsets never fall, and of two epochs that start at the same
    offset (the first wrote nothing) only the later is kept.
    """

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []  # parallel to _epochs
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False  # differs from the file

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), rising."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def start_epoch(self) -> int:
        """The first one; -1 if none is known."""
        return self._epochs[0] if self._epochs else UNDEFINED

    @property
    def start_offset(self) -> int:
        """Where the first one begins; -1 if none is known. Records below have no epoch."""
        return self._starts[0] if self._starts else UNDEFINED

    @property
    def latest_epoch(self) -> int:
        """-1 if none is known."""
        return self._epochs[-1] if self._epochs else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> None:
        """``epoch`` begins at ``start_offset``; nothing if it is not above the latest."""
        if self._epochs and epoch <= self._epochs[-1]:
            return
        self.truncate_from(start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.dirty = True

    def truncate_from(self, end_offset: int) -> None:
        """Forget epochs that begin at or behind ``end_offset``, the log's new end."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True

    def advance_start(self, start_offset: int) -> None:
        """The log begins at ``start_offset`` now: drop older epochs, move the one that holds it."""
        at = bisect_right(self._starts, start_offset) - 1
        if at < 0 or (at == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:at]
        del self._starts[:at]
        self._starts[0] = start_offset
        self.dirty = True

    def clear(self) -> None:
        if self._epochs:
            self.dirty = True
        self._epochs.clear()
        self._starts.clear()

    def epoch_for(self, offset: int) -> int:
        """The epoch of the record at ``offset``; -1 below the first one known."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNDEFINED

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The greatest epoch not above ``epoch``, and where it ends.

        For an epoch older than all that are known: ``epoch`` itself, ending where the first
        begins. For one above the latest, or while none is known: undefined.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return EpochEndOffset(UNDEFINED, UNDEFINED)
        if epoch == self._epochs[-1]:
            return EpochEndOffset(epoch, log_end_offset)
        following = bisect_right(self._epochs, epoch)
        floor = self._epochs[following - 1] if following else epoch
        return EpochEndOffset(floor, self._starts[following])
