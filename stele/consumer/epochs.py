"""The leader epochs of the records that were read from one partition (KIP-320)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

UNKNOWN_EPOCH = -1
MAX_EPOCHS = 64


class EpochHistory:
    """The leader epochs of the records that were read, and the first offset of each.

    A leader with another history has lost records that were read, or never had them. It gets the
    last epoch that was read, and answers with the offset at which its own log leaves that epoch.
    The leader does not know the reader's earlier epochs, which may end before that offset. They are
    here.
    """

    __slots__ = ("_before", "_epochs", "_starts")

    def __init__(self) -> None:
        # The epoch below the first offset that is known: given, or forgotten.
        self._before = UNKNOWN_EPOCH
        # Both rise strictly. At most MAX_EPOCHS.
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def begin(self, epoch: int = UNKNOWN_EPOCH) -> None:
        """Read from an offset whose predecessor is of ``epoch``, as far as is known."""
        self._before = epoch
        self._epochs.clear()
        self._starts.clear()

    def note(self, epoch: int, offset: int) -> None:
        """The record read at ``offset`` is of ``epoch``. Offsets rise from call to call."""
        if not self._epochs and epoch < self._before:
            self._before = UNKNOWN_EPOCH  # the given epoch cannot be right: epochs never fall
        if epoch <= self.epoch_below(offset + 1):
            return
        self._epochs.append(epoch)
        self._starts.append(offset)
        if len(self._epochs) > MAX_EPOCHS:
            self._before = self._epochs.pop(0)
            del self._starts[0]

    def epoch_below(self, offset: int) -> int:
        """The epoch of the last record below ``offset``; -1 if it is not known."""
        at = bisect_left(self._starts, offset)
        return self._epochs[at - 1] if at else self._before

    def cut(self, offset: int) -> None:
        """The records that were read from ``offset`` on no longer count."""
        at = bisect_left(self._starts, offset)
        del self._epochs[at:]
        del self._starts[at:]

    def diverged(self, epoch: int, end_offset: int) -> int:
        """A leader answers with its greatest epoch that is not above the last one that was read,
        and with the end of that epoch. Returns the offset up to which both histories agree, and
        forgets the rest."""
        later = bisect_right(self._epochs, epoch)
        agreed = min([end_offset, *self._starts[later : later + 1]])
        self.cut(agreed)
        self._before = min(self._before, epoch)
        return agreed
