"""The leader epoch cache: which leader epoch began at which offset (KIP-101, KIP-279, KIP-320).

It is in memory and written at checkpoints. Every batch carries its epoch, so recovery rebuilds the
cache above the recovery point, and the file must be right only below it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNDEFINED = -1


class EpochEndOffset(NamedTuple):
    """A leader epoch and the offset after its last record. Both are -1 if this is not known."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Epochs rise strictly, and start offsets never fall. If two epochs start at the same offset,
    the first wrote nothing, and only the later one is kept."""

    __slots__ = ("_epochs", "_starts", "dirty", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []  # parallel to _epochs
        self.latest_epoch = UNDEFINED
        """The last known epoch; -1 if none is known."""
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False  # differs from the file

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of every epoch, in rising order."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def start_epoch(self) -> int:
        """The first known epoch; -1 if none is known."""
        return self._epochs[0] if self._epochs else UNDEFINED

    @property
    def start_offset(self) -> int:
        """The start offset of the first known epoch; -1 if none is known. Records below it have no
        known epoch."""
        return self._starts[0] if self._starts else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> None:
        """``epoch`` begins at ``start_offset``. Does nothing unless it is above the latest
        epoch."""
        if self._epochs and epoch <= self._epochs[-1]:
            return
        self.truncate_from(start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest_epoch = epoch
        self.dirty = True

    def assign_from_batch(self, epoch: int, end_before: int, log_start_offset: int) -> None:
        """As ``assign`` for a batch of the log. ``end_before``: the end of the batch before it.

        Compaction may have removed the first batches of an epoch, so the epoch may begin anywhere
        between the two batches. It counts from the end of the first one, and the first known epoch
        from the log's start. If it counted from a later offset, a follower with records of an
        earlier epoch between the two would keep them, although no leader has them. A follower may
        cut such records without harm: the leader has nothing there.
        """
        self.assign(epoch, max(end_before, log_start_offset) if self._epochs else log_start_offset)

    def truncate_from(self, end_offset: int) -> None:
        """Forget epochs that begin at or above ``end_offset``, the log's new end."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED
            self.dirty = True

    def advance_start(self, start_offset: int) -> None:
        """The log now begins at ``start_offset``. Drop older epochs, and let the epoch of this
        offset begin there."""
        at = bisect_right(self._starts, start_offset) - 1
        if at < 0 or self._starts[0] == start_offset:
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
        self.latest_epoch = UNDEFINED

    def epoch_for(self, offset: int) -> int:
        """The epoch of the record at ``offset``; -1 below the first known epoch."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNDEFINED

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The greatest known epoch that is not above ``epoch``, and its end offset.

        If ``epoch`` is older than all known epochs, the result is ``epoch`` itself and the start of
        the first known one. If it is above the latest, or no epoch is known, both values are -1.
        Example: epochs 1 and 4 begin at 0 and 10. The answer for 3 is (1, 10), and for 4 it is (4,
        log end offset).
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return EpochEndOffset(UNDEFINED, UNDEFINED)
        if epoch == self._epochs[-1]:
            return EpochEndOffset(epoch, log_end_offset)
        following = bisect_right(self._epochs, epoch)
        floor = self._epochs[following - 1] if following else epoch
        return EpochEndOffset(floor, self._starts[following])
