"""What lanes have in common. A lane is the queue of records that one producer id writes to one
partition. Pure.

Records come in runs. A run is what one message holds for one partition. It may be split: a part of
it may be written already, or be refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from stele.errors import ErrorCode

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

BATCH_BYTES: Final = 64 * 1024
"""The size of a batch before compression. To build one is one turn of the event loop."""
EXPIRED: Final = "the leader did not answer in time, or there was none"


class Part(NamedTuple, Generic[R_co]):
    """Consecutive records of a run."""

    run: R_co
    first: int
    record_count: int


class Stored(NamedTuple):
    """The records are in the log, one after the other. ``base_offset`` is None if the leader no
    longer knows it."""

    base_offset: int | None
    is_duplicate: bool


class Refused(NamedTuple):
    """The records are not in the log, unless ``maybe_written``."""

    code: ErrorCode
    message: str
    maybe_written: bool = False


class Resolved(NamedTuple, Generic[R_co]):
    """The outcome of some records."""

    part: Part[R_co]
    outcome: Stored | Refused


class Prepare:
    """The lane must learn something from a broker before it can send."""


class Send(NamedTuple, Generic[R_co]):
    """Write these records, in one batch that begins with this sequence (-1: it has none), and
    report how it went."""

    base_sequence: int
    parts: Sequence[Part[R_co]]


class Lane(Protocol[R]):
    """Do what ``decide`` says, and report what came of it. One action is under way at most."""

    @property
    def producer_id(self) -> int:
        """The producer id of the batches; -1: none."""
        ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def next_deadline_s(self) -> float | None:
        """When ``expire`` is to be called next; None: it need not be."""
        ...

    def decide(self, now_s: float) -> tuple[list[Resolved[R]], Prepare | Send[R] | None]:
        """Records that are resolved by now, and what is to be done; None: nothing."""
        ...

    def expire(self, now_s: float) -> list[Resolved[R]]:
        """Refuse the records whose time is over, also those in the batch that is under way. What
        becomes of that batch changes nothing for them any more."""
        ...

    def acknowledged(self, base_offset: int) -> list[Resolved[R]]:
        """The batch that was sent is committed. ``base_offset`` is -1 if the leader does not say
        where."""
        ...

    def not_acknowledged(self, *, maybe_written: bool) -> None:
        """The attempt failed. Another one may succeed."""
        ...

    def rejected(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        """The leader refused the batch for good, and did not write it now."""
        ...

    def out_of_step(self, code: ErrorCode) -> list[Resolved[R]]:
        """The leader expects another sequence."""
        ...

    def fail_all(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        """No record can be written to this partition any more."""
        ...


@dataclass(slots=True, eq=False)
class Waiting(Generic[R]):
    """A part of a run that has no outcome yet."""

    part: Part[R]
    size: int
    deadline_s: float
    sequence: int = -1
    """The publisher's number of the first record; -1: it has none."""
    maybe_written: bool = False
    """An attempt to write it had no outcome."""
    is_told: bool = False
    """It has expired while it was under way. It is resolved, and stays until its batch is."""

    @property
    def last(self) -> int:
        """The publisher's number of the last record."""
        return self.sequence + self.part.record_count - 1

    def split(self, count: int) -> Waiting[R]:
        """Keep the first ``count`` records. Returns the others."""
        run, first, all_ = self.part
        size = self.size * count // all_
        rest = replace(
            self,
            part=Part(run, first + count, all_ - count),
            size=self.size - size,
            sequence=self.sequence if self.sequence < 0 else self.sequence + count,
        )
        self.part, self.size = Part(run, first, count), size
        return rest

    def refused(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        """Nothing if it is told already."""
        if self.is_told:
            return []
        return [Resolved(self.part, Refused(code, message, self.maybe_written))]

    def stored(self, base_offset: int | None, *, is_duplicate: bool) -> list[Resolved[R]]:
        """Nothing if it is told already."""
        return [] if self.is_told else [Resolved(self.part, Stored(base_offset, is_duplicate))]


def expired(waiting: deque[Waiting[R]], now_s: float) -> list[Resolved[R]]:
    """Take the parts whose time is over."""
    resolved: list[Resolved[R]] = []
    while waiting and waiting[0].deadline_s <= now_s:
        resolved += waiting.popleft().refused(ErrorCode.REQUEST_TIMED_OUT, EXPIRED)
    return resolved


def expired_under_way(sent: Iterable[Waiting[R]], now_s: float) -> list[Resolved[R]]:
    """Refuse the parts whose time is over. They stay in their batch, which may still be
    written."""
    resolved: list[Resolved[R]] = []
    for each in sent:
        if each.deadline_s > now_s:
            break
        if not each.is_told:
            refused = Refused(ErrorCode.REQUEST_TIMED_OUT, EXPIRED, maybe_written=True)
            resolved.append(Resolved(each.part, refused))
            each.is_told = True
    return resolved


def next_deadline_s(waiting: Iterable[Waiting[R]]) -> float | None:
    """The first deadline of a part whose client has not been told its outcome."""
    return next((each.deadline_s for each in waiting if not each.is_told), None)
