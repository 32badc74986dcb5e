"""The dead letters of a share partition: which are to be written next (KIP-1191)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.share.machine import SharePartition
from broker.share.values import LetterPlan, StateBatch, StateWrite

NO_TOPIC: Final = bytes(16)


class LetterTarget(NamedTuple):
    """A partition of the dead letter topic."""

    topic_id: bytes
    partition: int


class LetterDesk:
    """Gives each record that is archiving exactly one letter, whichever leader dies when.

    The steps of a batch of letters: ``plan`` returns a write, after which comes ``persisted``. Then
    the caller writes the letters of ``under_way`` until the dead letter topic has them. ``archive``
    returns the write that makes the records done, and after it comes ``persisted`` again. A leader
    that dies between the first write and the last one leaves ``under_way`` to the next leader.
    """

    def __init__(self, machine: SharePartition, plan: LetterPlan | None) -> None:
        """``plan``: as it is persisted."""
        self._machine = machine
        self._plan = plan
        self._revision = 0 if plan is None else plan.revision  # of the newest write

    @property
    def under_way(self) -> LetterPlan | None:
        """The letters that are being written, if any are. Whether the dead letter topic has them is
        not known."""
        return self._plan if self._plan is not None and self._plan.ranges else None

    def due(self, most: int) -> list[StateBatch]:
        """The records for the next letters. Empty while letters are under way."""
        return [] if self.under_way is not None else self._machine.letters_due(most)

    def needs_producer(self, target: LetterTarget) -> bool:
        """Whether ``plan`` needs a new producer id. A sequence counts the letters of one
        partition."""
        plan = self._plan
        return plan is None or (plan.topic_id, plan.partition) != target

    def plan(
        self, target: LetterTarget, records: Sequence[StateBatch], producer_id: int
    ) -> StateWrite:
        """The next letters are for ``records``, which are ``due``. ``producer_id`` is new, and is
        used only if one is needed. The reasons are persisted with the plan: the write of an ended
        lock may still be under way, or may have failed."""
        assert self.under_way is None
        plan = self._plan
        if plan is None or self.needs_producer(target):
            plan = LetterPlan(*target, producer_id, 0, 0)
        plan = self._revised(plan._replace(ranges=tuple(_joined(records))))
        return self._machine.restate()._replace(
            batches=tuple(records), letters=plan, is_of_letters=True
        )

    def archive(self) -> StateWrite:
        """The dead letter topic has the letters that are under way."""
        plan = self.under_way
        assert plan is not None
        return self._machine.archive(plan.ranges, self._revised(plan.finished))

    def give_up(self, records: Sequence[StateBatch]) -> StateWrite:
        """Archive records without letters: there is no dead letter topic any more, or the log has
        no record there."""
        return self._machine.archive([(each.first, each.last) for each in records], None)

    def abandon(self) -> StateWrite:
        """The dead letter topic of the letters that are under way is gone, or has lost letters of
        their producer. Their records are due again, with another producer."""
        nothing = LetterPlan(NO_TOPIC, 0, -1, 0, 0)
        return self._machine.restate()._replace(letters=self._revised(nothing))

    def _revised(self, plan: LetterPlan) -> LetterPlan:
        self._revision += 1
        return plan._replace(revision=self._revision)

    def persisted(self, write: StateWrite) -> None:
        """A write of this desk is persisted."""
        if write.letters is not None:
            self._plan = write.letters


def _joined(records: Iterable[StateBatch]) -> list[tuple[int, int]]:
    """Their offsets. Records in a row are one range, whatever their reasons."""
    found: list[tuple[int, int]] = []
    for first, last, _, _ in records:
        if found and found[-1][1] + 1 == first:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found
