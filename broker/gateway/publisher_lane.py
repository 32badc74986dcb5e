"""Records of one publisher for one partition: each is written once, however often it is sent. Pure.

A publisher numbers its records for a partition 0, 1, 2, …. The numbers are the sequences of an
idempotent producer (KIP-98), whose id is the publisher's. So the leader's log remembers how far the
publisher has come, and takes a batch only if it goes on exactly there. Batches need not be cut in
the same way when they are sent again, by this broker or by another one. So a lane does not rely on
the leader to recognize them. It asks the leader how far the publisher has come. Then it answers
for what is there, and sends what is not:

- A lane sends nothing, and answers for nothing, before everything that the leader knows of the
  publisher is committed. Otherwise a new leader, which lacks it, would take what comes after it: a
  leader takes any sequence from a producer that it does not know.
- For the same reason a lane sends nothing but sequence 0 to a leader that does not know the
  publisher.
- At most one batch is under way. After anything but an acknowledgement the lane asks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from stele.errors import ErrorCode

R = TypeVar("R")

SEQUENCES: Final = 1 << 31
"""A leader counts sequences modulo this, as in Kafka. A publisher's numbers go on."""


class KnownBatch(NamedTuple):
    """A batch that the leader remembers, with its sequences as the leader counts them."""

    base_sequence: int
    last_sequence: int
    base_offset: int

    @property
    def record_count(self) -> int:
        return (self.last_sequence - self.base_sequence) % SEQUENCES + 1


@dataclass(slots=True, eq=False)
class Waiting(Generic[R]):
    """A record that has no outcome yet."""

    sequence: int
    record: R
    size: int
    deadline_s: float
    maybe_written: bool = False  # an attempt to write it had no outcome


class Stored(NamedTuple):
    """The record is in the log. ``offset`` is None if the leader no longer knows it."""

    offset: int | None
    is_duplicate: bool


class Refused(NamedTuple):
    """The record is not in the log, unless ``maybe_written``."""

    code: ErrorCode
    message: str
    maybe_written: bool = False


class Resolved(NamedTuple, Generic[R]):
    """What became of a record."""

    record: R
    outcome: Stored | Refused


class Ask:
    """Ask the leader how far the publisher has come, and tell ``known``."""


class Send(NamedTuple, Generic[R]):
    """Write these records, in one batch that begins with this sequence, and tell how it went."""

    base_sequence: int
    records: Sequence[R]


class _Written(NamedTuple):
    """Records that are committed, by the publisher's numbers."""

    first: int
    last: int
    base_offset: int


class PublisherLane(Generic[R]):
    """``add`` records, do what ``decide`` says, and report what came of it."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._waiting: deque[Waiting[R]] = deque()
        self._under_way = 0  # so many of the first records are in the batch that is sent
        # The number of the last committed record; -1: there is none. None: ask the leader.
        self._committed: int | None = None
        self._is_known = False  # the leader knows the publisher
        self._written: deque[_Written] = deque(maxlen=5)  # what is known of committed records
        # A batch was refused. Up to this number records are sent one by one, to find the bad one.
        self._alone_to = -1

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def next_deadline_s(self) -> float:
        return self._waiting[0].deadline_s

    def add(self, sequence: int, record: R, size: int, deadline_s: float) -> None:
        """A record has come. Deadlines do not fall."""
        self._waiting.append(Waiting(sequence, record, size, deadline_s))

    def decide(self, now_s: float) -> tuple[list[Resolved[R]], Ask | Send[R] | None]:
        """Records that are resolved by now, and what is to be done; None: nothing. Nothing may be
        under way."""
        resolved = self._expired(now_s)
        if not self._waiting:
            return resolved, None
        if self._committed is None:
            return resolved, Ask()
        while self._waiting:
            head = self._waiting[0]
            if head.sequence == self._committed + 1:
                return resolved, self._send()
            resolved.append(self._resolve(self._known_outcome(head)))
        return resolved, None

    def _known_outcome(self, head: Waiting[R]) -> Stored | Refused:
        assert self._committed is not None
        if head.sequence <= self._committed:
            return Stored(self._offset_of(head.sequence), is_duplicate=True)
        if not self._is_known:
            return Refused(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"sequence {head.sequence} of a publisher that the partition does not know, or has "
                "forgotten: a publisher begins with 0",
                head.maybe_written,
            )
        return Refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {head.sequence}: {self._committed + 1} is next in this partition",
            head.maybe_written,
        )

    def _send(self) -> Send[R]:
        base = self._waiting[0].sequence
        chosen: list[R] = []
        size = 0
        for each in self._waiting:
            size += each.size
            if each.sequence != base + len(chosen) or (chosen and size > self._batch_bytes):
                break
            chosen.append(each.record)
            if each.sequence <= self._alone_to:
                break
        self._under_way = len(chosen)
        return Send(base % SEQUENCES, chosen)

    # ------------------------------------------------------------------------ reports

    def known(self, batches: Sequence[KnownBatch], high_watermark: int) -> bool:
        """The leader's answer: the batches that it remembers, the oldest first; none: it does not
        know the publisher. Returns False if it is to be asked again, a little later."""
        if not batches:
            self._committed = -1
            self._is_known = False
            self._written.clear()
            return True
        if batches[-1].base_offset + batches[-1].record_count > high_watermark:
            return False
        self._is_known = True
        last = self._full_number(batches[-1].last_sequence)
        self._committed = last
        self._written.clear()
        for batch in reversed(batches):
            first = last - batch.record_count + 1
            self._written.appendleft(_Written(first, last, batch.base_offset))
            last = first - 1
        return True

    def _full_number(self, sequence: int) -> int:
        """The publisher's number for a leader's sequence: the one nearest to the next record."""
        near = self._waiting[0].sequence if self._waiting else 0
        behind = (near - sequence) % SEQUENCES
        if behind >= SEQUENCES // 2:
            behind -= SEQUENCES
        return near - behind

    def acknowledged(self, base_offset: int) -> list[Resolved[R]]:
        """The batch that was sent is committed. ``base_offset`` is -1 if the leader does not say
        where."""
        first = self._waiting[0].sequence
        self._committed = first + self._under_way - 1
        self._is_known = True
        if base_offset >= 0:
            self._written.append(_Written(first, self._committed, base_offset))
        resolved = [
            self._resolve(Stored(base_offset + i if base_offset >= 0 else None, is_duplicate=False))
            for i in range(self._under_way)
        ]
        self._under_way = 0
        return resolved

    def not_acknowledged(self, *, maybe_written: bool) -> None:
        """The attempt failed. It, or another broker's, may succeed later."""
        if maybe_written:
            for i in range(self._under_way):
                self._waiting[i].maybe_written = True
        self._under_way = 0
        self._committed = None

    def rejected(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        """The leader refused the batch for good, and did not write it."""
        count, self._under_way = self._under_way, 0
        if count > 1:
            self._alone_to = self._waiting[count - 1].sequence
            return []
        return [self._resolve(Refused(code, message, self._waiting[0].maybe_written))]

    def fail_all(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        """No record of the publisher can be written to this partition any more."""
        self._under_way = 0
        return [
            self._resolve(Refused(code, message, self._waiting[0].maybe_written))
            for _ in range(len(self._waiting))
        ]

    # ---------------------------------------------------------------------- outcomes

    def _expired(self, now_s: float) -> list[Resolved[R]]:
        resolved = []
        while self._waiting and self._waiting[0].deadline_s <= now_s:
            message = "the leader did not answer in time, or there was none"
            maybe_written = self._waiting[0].maybe_written
            refused = Refused(ErrorCode.REQUEST_TIMED_OUT, message, maybe_written)
            resolved.append(self._resolve(refused))
        return resolved

    def _resolve(self, outcome: Stored | Refused) -> Resolved[R]:
        return Resolved(self._waiting.popleft().record, outcome)

    def _offset_of(self, sequence: int) -> int | None:
        for written in self._written:
            if written.first <= sequence <= written.last:
                return written.base_offset + sequence - written.first
        return None
