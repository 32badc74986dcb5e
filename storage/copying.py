"""Filling the copy of a log that is in use, a slice at a time (KIP-113).

The batches are read and appended as a follower does it, byte for byte. The log goes on meanwhile:
it grows, its start moves, it may be truncated or fail.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from stele.errors import SteleError
from storage.cold_range import ColdRange
from storage.log import PartitionLog

SLICE_BYTES: Final = 256 << 10
"""Reading, checking and appending this much takes a fraction of a millisecond."""


class CopyStep(enum.Enum):
    """The next step of a copy."""

    BEGIN_ANEW = "begin anew"  # its contents may not be in the log any more
    RESTART = "restart"  # all that it has was deleted from the log's start
    FILL = "fill"
    COMPLETE = "complete"


class Lineage(NamedTuple):
    """A log's changes of what it held before, as of the beginning of a copy.

    A truncation may be followed by other records at the same offsets. A compaction may remove a
    record together with its later tombstone, and a copy that has the record would not get the
    tombstone.
    """

    truncation_generation: int
    replacements: int

    @classmethod
    def of(cls, log: PartitionLog) -> Lineage:
        return cls(log.truncation_generation, log.segments.replacements)


def next_step(
    begun: Lineage, now: Lineage, log: tuple[int, int], copy: tuple[int, int]
) -> CopyStep:
    """``begun``: the log's lineage when the copy was empty. ``log`` and ``copy``: start and end
    offset of each."""
    if now != begun:
        return CopyStep.BEGIN_ANEW
    if copy[1] < log[0]:
        return CopyStep.RESTART
    return CopyStep.COMPLETE if copy == log else CopyStep.FILL


class Copying:
    """One copy of one log. ``advance`` does a slice of the work without waiting."""

    def __init__(self, log: PartitionLog, copy: PartitionLog) -> None:
        """``copy`` is empty."""
        self.log = log
        self.copy = copy
        self._begun = Lineage.of(log)

    @property
    def step(self) -> CopyStep:
        """The next step."""
        log, copy = self.log, self.copy
        return next_step(
            self._begun,
            Lineage.of(log),
            (log.start_offset, log.end_offset),
            (copy.start_offset, copy.end_offset),
        )

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind."""
        return max(0, self.log.end_offset - self.copy.end_offset)

    def advance(self) -> int | ColdRange:
        """Copy the next batches. Returns their bytes, or what must be warmed first.

        The step is ``RESTART`` or ``FILL``. Raises StorageError, CorruptLogError, CorruptBatchError
        as reading and appending do: nothing, or only whole batches, were appended.
        """
        log, copy = self.log, self.copy
        if self.step is CopyStep.RESTART:
            copy.reset_to(log.start_offset)
        if copy.config is not log.config:
            copy.configure(log.config)
        size = 0
        if copy.end_offset < log.end_offset:
            found = log.read(copy.end_offset, SLICE_BYTES)
            if found.cold is not None:
                return found.cold
            size = len(found.data)
            if not size:
                raise SteleError(f"{log}: there is nothing to read at {copy.end_offset}")
            base_offset = copy.base_to_begin_with(found.data)
            if base_offset is not None:
                copy.reset_to(base_offset)
            copy.append_as_follower(found.data)
        copy.advance_start_offset(min(log.start_offset, copy.end_offset))
        return size
