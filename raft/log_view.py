"""The core's view of the log: its start, its end, how much is durable, and where epochs begin."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from raft.messages import EpochEnd, SnapshotId


class LogView:
    """Offsets and epochs of a log whose bytes lie elsewhere.

    An offset's epoch is that of the leader who appended it. Two logs that agree on the epoch of an
    offset agree on everything before it (Ongaro's log matching property, §3.5).
    """

    def __init__(
        self,
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Sequence[tuple[int, int]] = (),
    ) -> None:
        """A log as recovery left it, all durable; ``epochs`` are (epoch, start offset).

        Where a snapshot stands before the log, the first epoch is that of its last record.
        """
        if epochs and (list(epochs) != sorted(set(epochs)) or epochs[-1][1] >= end_offset):
            raise ValueError(f"epochs {epochs} do not fit a log that ends at {end_offset}")
        self.start_offset = start_offset  # <= every other offset here
        self.end_offset = end_offset  # offset of the next record
        self.durable_end_offset = end_offset  # <= end_offset; everything below survives a crash
        # Both ascend strictly; _starts[0] may lie below start_offset, _starts[-1] < end_offset.
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [start for _, start in epochs]

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, in the log or the snapshot before it; 0 without either."""
        return self._epochs[-1] if self._epochs else 0

    @property
    def epochs(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def append(self, base_offset: int, count: int, epoch: int) -> None:
        if base_offset != self.end_offset or count < 1 or epoch < self.last_epoch:
            raise ValueError(
                f"cannot append {count} records of epoch {epoch} at {base_offset} to a log that"
                f" ends at {self.end_offset} in epoch {self.last_epoch}"
            )
        if epoch > self.last_epoch:
            self._epochs.append(epoch)
            self._starts.append(base_offset)
        self.end_offset += count

    def truncate_to(self, offset: int) -> None:
        """Drop everything from ``offset`` on."""
        if not self.start_offset <= offset <= self.end_offset:
            raise ValueError(
                f"cannot truncate [{self.start_offset}, {self.end_offset}) to {offset}"
            )
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = offset
        self.durable_end_offset = min(self.durable_end_offset, offset)

    def cut_before(self, offset: int) -> None:
        """The log begins at ``offset`` now: a snapshot has everything before."""
        if not self.start_offset <= offset <= self.durable_end_offset:
            raise ValueError(f"cannot cut [{self.start_offset}, {self.end_offset}) before {offset}")
        self.start_offset = offset
        known = max(bisect_right(self._starts, offset - 1) - 1, 0)  # of the record before
        del self._epochs[:known]
        del self._starts[:known]

    def reset_to(self, snapshot: SnapshotId) -> None:
        """The log is empty and begins where the snapshot ends."""
        self.start_offset = self.end_offset = self.durable_end_offset = snapshot.end_offset
        self._epochs = [snapshot.epoch]
        self._starts = [snapshot.end_offset - 1]

    def durable_to(self, offset: int) -> None:
        """Everything below ``offset`` is durable."""
        if offset > self.end_offset:
            raise ValueError(f"{offset} cannot be durable in a log that ends at {self.end_offset}")
        self.durable_end_offset = max(self.durable_end_offset, offset)

    def epoch_of(self, offset: int) -> int:
        """Epoch of the record at ``offset``; 0 when it is before every known epoch."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else 0

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """The greatest epoch in the log that is <= ``epoch``, and where it ends here (KIP-320)."""
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return EpochEnd(0, self._starts[0] if self._starts else self.end_offset)
        if index == len(self._starts):
            return EpochEnd(self._epochs[index - 1], self.end_offset)
        return EpochEnd(self._epochs[index - 1], self._starts[index])

    def __repr__(self) -> str:
        return f"[{self.start_offset}, {self.end_offset})"

    def is_up_to_date(self, last_epoch: int, last_offset: int) -> bool:
        """Whether a log with this end holds all that this one may have committed (§3.6.1)."""
        return (last_epoch, last_offset) >= (self.last_epoch, self.end_offset)
