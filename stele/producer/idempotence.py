"""Decides which batch of a partition is sent next, with which sequence, and what its answer means.

A :class:`Lane` is one partition's window of batches that have sequences and are not resolved yet.
It does no IO. The sender asks it what to send and reports the results.

These rules keep every record written once and in order:

- Sequences are assigned in the order of sending and kept for every repetition.
- The first batch under a producer id is sent alone until it is acknowledged. A broker that does not
  know a producer accepts any sequence (KIP-360). If it refused the first batch, because its
  metadata are old, and accepted the second, the first would be out of order for good.
- After a failure nothing is sent until every batch in flight was answered or given up. Then the
  oldest batch is sent alone. Only after its success may the others follow.
- If a batch is too large, its parts take its sequences.
- If a batch fails for good, its sequences are used again only if no attempt at it, or at a later
  one, can have been written. Otherwise the batches that may have been written fail as well, and the
  rest gets a new producer id: a new id cannot collide with what may be in the log.

For the broker's side see https://kafka.apache.org/documentation/#producerconfigs_enable.idempotence
and KIP-98. A broker remembers the last five batches of a producer per partition. Answers may come
in any order (one waits for the slowest partition of its request). So at most five batches are sent
from the oldest unanswered one on, answered or not. Otherwise the broker could not tell the oldest
from a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    sequence: int  # the sequence of its first record; -1 without idempotence
    identity: Identity
    ordinal: int = 0  # the number of batches that the lane admitted before it
    attempt: int = 0  # rises with each sending, so that answers to earlier attempts are recognized
    in_flight: bool = False
    maybe_written: bool = False  # never set back: one attempt that was not surely refused is enough
    sent_as_head: bool = False  # at the last attempt no batch before it was unresolved
    # It failed for good, and leaves the window when it is the oldest.
    doom: SteleError | None = None


class Failed(NamedTuple, Generic[B]):
    batch: B
    cause: SteleError
    maybe_written: bool


@dataclass(slots=True)
class Lane(Generic[B]):
    """One partition's unresolved batches, the oldest first.

    ``identity`` is None while a new producer id is needed. Nothing is sent until ``give``.
    """

    numbered: bool = True
    max_window: int = MAX_WINDOW
    identity: Identity | None = None
    next_sequence: int = 0  # the sequence of the next batch that is admitted
    admitted: int = 0  # the number of batches admitted so far
    window: list[Entry[B]] = field(default_factory=list)
    recovering: bool = False  # an attempt failed, and the oldest has not succeeded since then
    # The broker has lost this producer; handled once nothing is in flight.
    forgotten: SequenceError | None = None
    begun: bool = False  # a batch under this identity was acknowledged, so the broker knows it

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
        """Use a new producer id. The batches in the window are numbered again from 0."""
        if self.any_in_flight:
            raise AssertionError("a lane changes its producer only while nothing is in flight")
        self.identity = identity
        self.begun = False
        self._renumber(0)

    # ------------------------------------------------------------------------- sending

    def to_resend(self) -> Entry[B] | None:
        """The batch of the window to send now. None if the window is empty, or all batches must
        wait.
        """
        if self.identity is None:
            return None
        if self.recovering or not self.begun:
            return None if self.any_in_flight or not self.window else self.window[0]
        entry = next((entry for entry in self.window if not entry.in_flight), None)
        return entry if entry is not None and self._is_remembered(entry.ordinal) else None

    def may_admit(self) -> bool:
        """Whether another batch may be admitted and sent now."""
        return (
            self.identity is not None
            and not self.recovering
            and (self.begun or not self.window)
            and (not self.window or self._is_remembered(self.admitted))
            and all(entry.in_flight for entry in self.window)
        )

    def _is_remembered(self, ordinal: int) -> bool:
        """Whether the broker still remembers the oldest batch after it has taken this one."""
        return ordinal - self.window[0].ordinal < self.max_window

    def admit(self, batch: B, record_count: int) -> Entry[B]:
        """Add a batch to the window and assign its sequence. Call ``sending`` next."""
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
        """The entry is sent now. Returns the number of the attempt, which its answer must have."""
        entry.in_flight = True
        entry.attempt += 1
        entry.sent_as_head = entry is self.window[0]
        return entry.attempt

    # ------------------------------------------------------------------------- answers

    def written(self, entry: Entry[B]) -> list[Failed[B]]:
        """The batch was acknowledged, or the broker recognized it as a repetition."""
        entry.in_flight = False
        self.begun = True
        if entry is self.window[0]:
            self.recovering = False
        self.window.remove(entry)
        return self._settle()

    def refused(self, entry: Entry[B]) -> list[Failed[B]]:
        """This attempt has surely not written the batch. A later one may succeed."""
        entry.in_flight = False
        self.recovering = True
        return self._settle()

    def unknown(self, entry: Entry[B]) -> list[Failed[B]]:
        """There was no answer, or one after which the batch may have been written or may still
        be."""
        entry.maybe_written = True
        return self.refused(entry)

    def out_of_order(self, entry: Entry[B], message: str) -> list[Failed[B]]:
        """The answer was OUT_OF_ORDER_SEQUENCE_NUMBER. Raises SequenceError unless it follows from
        an earlier failure.

        For a batch behind an unresolved one it only says that the unresolved one has not arrived.
        For the oldest batch it says that the broker lacks records that it had acknowledged.
        """
        if not entry.sent_as_head:
            return self.refused(entry)
        entry.in_flight = False
        raise SequenceError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"the broker lacks the records before sequence {entry.sequence} of producer "
            f"{entry.identity.producer_id} although all of them were acknowledged ({message}): "
            "acknowledged records may be lost, for example by an unclean election",
        )

    def unknown_producer(self, entry: Entry[B], message: str) -> list[Failed[B]]:
        """The answer was UNKNOWN_PRODUCER_ID: the broker has forgotten this producer (its records
        expired).

        Batches that were surely not written are sent under a new producer id. The others fail,
        because it can no longer be found out whether they were written.
        """
        self.forgotten = SequenceError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"the broker has forgotten producer {entry.identity.producer_id} while a batch was "
            f"without an answer ({message}): it may or may not have been written",
        )
        return self.refused(entry)

    def rejected(self, entry: Entry[B], cause: ApiError) -> list[Failed[B]]:
        """The batch was refused for good (too large, invalid). It leaves the window once it is the
        oldest."""
        entry.doom = cause
        return self.refused(entry)

    def may_split(self, entry: Entry[B]) -> bool:
        """Whether a batch that was refused as too large can be sent in parts. If it may be in the
        log as a whole, the broker would call its parts out of order."""
        return entry.record_count > 1 and not entry.maybe_written

    def split(self, entry: Entry[B], parts: Sequence[tuple[B, int]]) -> list[Failed[B]]:
        """The answer was that the batch is too large. Its parts, each with its number of records,
        take its place and its sequences, so that those of later batches stay."""
        if not self.may_split(entry) or sum(count for _, count in parts) != entry.record_count:
            raise AssertionError("these are not the parts of a batch that was surely not written")
        entry.in_flight = False
        at = self.window.index(entry)
        sequence, entries = entry.sequence, []
        for number, (batch, count) in enumerate(parts):
            part = Entry(batch, count, sequence, entry.identity, entry.ordinal + number)
            entries.append(part)
            if self.numbered:
                sequence = (sequence + count) & SEQUENCE_MASK
        self.window[at : at + 1] = entries
        for later in self.window[at + len(parts) :]:
            later.ordinal += len(parts) - 1
        self.admitted += len(parts) - 1
        self.recovering = True
        return self._settle()

    def give_up(self, entry: Entry[B], cause: SteleError) -> list[Failed[B]]:
        """The batch's delivery timeout has passed. It must not be in flight: report an attempt by
        ``unknown`` first."""
        if entry.in_flight:
            raise AssertionError("an attempt in flight is given up first")
        entry.doom = entry.doom or cause
        self.recovering = True
        return self._settle()

    def restart(self) -> None:
        """The partition's topic was deleted and created again: begin again with a new producer
        id."""
        if self.any_in_flight:
            raise AssertionError("a lane starts afresh only while nothing is in flight")
        for entry in self.window:
            entry.maybe_written = False
        if self.numbered:
            self.identity = None

    def abandon(self) -> list[B]:
        """The transaction is given up: forget all batches, and their answers. Their sequences are
        not used again."""
        batches = [entry.batch for entry in self.window]
        for entry in self.window:
            entry.in_flight = False
        if self.window:
            self.identity = None
        self.window = []
        self.recovering = False
        self.forgotten = None
        return batches

    # ---------------------------------------------------------------------- giving up

    def _settle(self) -> list[Failed[B]]:
        """If nothing is in flight, remove failed batches from the front, and begin again if
        necessary."""
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
        """Require a new producer id. Batches that may be in the log under the old one fail."""
        uncertain = [entry for entry in self.window if entry.maybe_written]
        self.window = [entry for entry in self.window if not entry.maybe_written]
        self.identity = None
        return [Failed(entry.batch, entry.doom or cause, True) for entry in uncertain]

    def _renumber(self, sequence: int) -> None:
        if self.identity is None:
            return  # the next identity numbers them
        for entry in self.window:
            entry.identity = self.identity
            entry.sequence = sequence
            sequence = (sequence + entry.record_count) & SEQUENCE_MASK
        self.next_sequence = sequence
