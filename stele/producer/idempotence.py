"""Which batch of a partition may be sent next, with which sequence, and what its answer means.

A :class:`Lane` is one partition's window of batches that carry sequences and are not resolved yet.
It does no IO: the sender asks it what to send and tells it what came of that.

The rules that keep every record written once and in order:

- Sequences are given in the order of sending and kept over every repetition.
- The first batch under a producer id goes alone until it is acknowledged. A broker that does not
  know a producer takes any sequence (KIP-360): if it refused the first batch, because its metadata
  lag, and took the second, the first would be out of order for good.
- After a failure nothing is sent until all that is in flight has been answered or given up; then
  the oldest batch goes alone, and only its success lets the others follow.
- A batch that is given up for good takes its sequences along only if no attempt at it, nor at one
  behind it, can have been written. Otherwise those that may have been written fail too, and the
  rest go on under a new producer id: a fresh start cannot collide with what may be in the log.

The broker's side: https://kafka.apache.org/documentation/#producerconfigs_enable.idempotence and
KIP-98; it keeps the last five batches of a producer per partition. Answers may come in any order
(one waits for the slowest partition of its request), so from the oldest batch without an answer on
at most five are sent, answered or not: else the broker could not tell the oldest from a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from stele.errors import ApiError, ErrorCode, SequenceError, SteleError

B = TypeVar("B")

SEQUENCE_MASK = 0x7FFFFFFF
MAX_WINDOW = 5


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


ANONYMOUS = Identity(-1, -1)


@dataclass(slots=True, eq=False)
class Entry(Generic[B]):
    """A batch in the window."""

    batch: B
    record_count: int
    sequence: int  # of its first record; -1 in a lane without idempotence
    identity: Identity
    ordinal: int = 0  # how many batches the lane had admitted before
    attempt: int = 0  # raised by every sending: an answer to an earlier one is told by it
    in_flight: bool = False
    maybe_written: bool = False  # never set back: one attempt without a sure refusal is enough
    sent_as_head: bool = False  # at the latest attempt: nothing before it was unresolved
    doom: SteleError | None = None  # it failed for good; leaves when it is the oldest


class Failed(NamedTuple, Generic[B]):
    batch: B
    cause: SteleError
    maybe_written: bool


@dataclass(slots=True)
class Lane(Generic[B]):
    """One partition's batches on their way, oldest first.

    ``identity`` is None while a new producer id is needed: nothing is sent until ``give``.
    """

    numbered: bool = True
    max_window: int = MAX_WINDOW
    identity: Identity | None = None
    next_sequence: int = 0  # of the next batch admitted; follows the window's last
    admitted: int = 0  # batches ever
    window: list[Entry[B]] = field(default_factory=list)
    recovering: bool = False  # an attempt failed and no success of the oldest came since
    forgotten: SequenceError | None = None  # the broker lost this producer; acted on when settled
    begun: bool = False  # a batch under this identity was acknowledged: the broker knows it

    def __post_init__(self) -> None:
        if not self.numbered:
            self.identity = ANONYMOUS
            self.begun = True

    @property
    def needs_identity(self) -> bool:
        return self.identity is None

    @property
    def any_in_flight(self) -> bool:
        return any(entry.in_flight for entry in self.window)

    def give(self, identity: Identity) -> None:
        """A new producer id: what waits is numbered anew from 0."""
        if self.any_in_flight:
            raise AssertionError("a lane changes its producer only while nothing is in flight")
        self.identity = identity
        self.begun = False
        self._renumber(0)

    # ------------------------------------------------------------------------- sending

    def to_resend(self) -> Entry[B] | None:
        """The batch of the window to send now; none if there is none or all must wait."""
        if self.identity is None:
            return None
        if self.recovering or not self.begun:
            return None if self.any_in_flight or not self.window else self.window[0]
        return next((entry for entry in self.window if not entry.in_flight), None)

    def may_admit(self) -> bool:
        """Whether a further batch may be sent now."""
        return (
            self.identity is not None
            and not self.recovering
            and (self.begun or not self.window)
            and (not self.window or self.admitted - self.window[0].ordinal < self.max_window)
            and all(entry.in_flight for entry in self.window)
        )

    def admit(self, batch: B, record_count: int) -> Entry[B]:
        """Take a batch into the window, with its sequence; ``sending`` comes next."""
        if self.identity is None or not self.may_admit():
            raise AssertionError("the lane admits nothing now")
        entry = Entry(batch, record_count, -1, self.identity, self.admitted)
        self.admitted += 1
        if self.numbered:
            entry.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + record_count) & SEQUENCE_MASK
        self.window.append(entry)
        return entry

    def sending(self, entry: Entry[B]) -> int:
        """The entry leaves now; returns the attempt that its answer must name."""
        entry.in_flight = True
        entry.attempt += 1
        entry.sent_as_head = entry is self.window[0]
        return entry.attempt

    # ------------------------------------------------------------------------- answers

    def written(self, entry: Entry[B]) -> list[Failed[B]]:
        """Acknowledged, or recognised by the broker as a repetition."""
        entry.in_flight = False
        self.begun = True
        if entry is self.window[0]:
            self.recovering = False
        self.window.remove(entry)
        return self._settle()

    def refused(self, entry: Entry[B]) -> list[Failed[B]]:
        """Surely not written by this attempt; it may succeed later."""
        entry.in_flight = False
        self.recovering = True
        return self._settle()

    def unknown(self, entry: Entry[B]) -> list[Failed[B]]:
        """No answer, or one that does not exclude that it was or will be written."""
        entry.maybe_written = True
        return self.refused(entry)

    def out_of_order(self, entry: Entry[B], message: str) -> list[Failed[B]]:
        """OUT_OF_ORDER_SEQUENCE_NUMBER. Raises SequenceError if it is no echo of a failure before.

        Behind an unresolved batch it says only that this one has not arrived. For the oldest batch
        it says that the broker lacks what it had acknowledged.
        """
        if not entry.sent_as_head:
            return self.refused(entry)
        entry.in_flight = False
        raise SequenceError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"the broker misses records before sequence {entry.sequence} of producer "
            f"{entry.identity.producer_id} although all of them were acknowledged ({message}): "
            "acknowledged records may be lost, for example by an unclean election",
        )

    def unknown_producer(self, entry: Entry[B], message: str) -> list[Failed[B]]:
        """UNKNOWN_PRODUCER_ID: the broker has forgotten this producer (its records expired).

        What was surely not written goes on under a new producer id; the rest fails: whether it was
        written cannot be found out any more.
        """
        self.forgotten = SequenceError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"the broker has forgotten producer {entry.identity.producer_id} while a batch was "
            f"without an answer ({message}): it may or may not have been written",
        )
        return self.refused(entry)

    def rejected(self, entry: Entry[B], cause: ApiError) -> list[Failed[B]]:
        """Refused for good (too large, invalid…): it leaves the window once it is the oldest."""
        entry.doom = cause
        return self.refused(entry)

    def give_up(self, entry: Entry[B], cause: SteleError) -> list[Failed[B]]:
        """Its time is over. It must not be in flight: an attempt is given up by ``unknown``."""
        if entry.in_flight:
            raise AssertionError("an attempt in flight is given up first")
        entry.doom = entry.doom or cause
        self.recovering = True
        return self._settle()

    def restart(self) -> None:
        """The log itself is another (topic deleted and made anew): all of it starts afresh."""
        if self.any_in_flight:
            raise AssertionError("a lane starts afresh only while nothing is in flight")
        for entry in self.window:
            entry.maybe_written = False
        if self.numbered:
            self.identity = None

    # ---------------------------------------------------------------------- giving up

    def _settle(self) -> list[Failed[B]]:
        """Once nothing is in flight: let doomed batches at the front leave, start afresh if due."""
        if self.any_in_flight:
            return []
        failed: list[Failed[B]] = []
        if self.forgotten is not None:
            failed += self._start_afresh(self.forgotten)
            self.forgotten = None
        while self.window and self.window[0].doom is not None:
            failed += self._drop_oldest(self.window[0].doom)
        if not self.window:
            self.recovering = False
        return failed

    def _drop_oldest(self, cause: SteleError) -> list[Failed[B]]:
        head = self.window.pop(0)
        failed = [Failed(head.batch, cause, head.maybe_written)]
        if not self.numbered:
            return failed
        if head.maybe_written or any(entry.maybe_written for entry in self.window):
            failed += self._start_afresh(cause)
        else:
            self._renumber(head.sequence)
        return failed

    def _start_afresh(self, cause: SteleError) -> list[Failed[B]]:
        """Ask for a new producer id; what may be in the log under the old one fails."""
        uncertain = [entry for entry in self.window if entry.maybe_written]
        self.window = [entry for entry in self.window if not entry.maybe_written]
        self.identity = None
        return [Failed(entry.batch, entry.doom or cause, True) for entry in uncertain]

    def _renumber(self, sequence: int) -> None:
        if not self.numbered or self.identity is None:
            return
        for entry in self.window:
            entry.identity = self.identity
            entry.sequence = sequence
            sequence = (sequence + entry.record_count) & SEQUENCE_MASK
        self.next_sequence = sequence
