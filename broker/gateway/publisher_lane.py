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
from typing import Final, Generic, NamedTuple

from broker.gateway.lanes import (
    Part,
    Prepare,
    R,
    Resolved,
    Send,
    Waiting,
    expired,
    expired_under_way,
    next_deadline_s,
)
from stele.errors import ErrorCode

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


class _Written(NamedTuple):
    """Records that are committed, by the publisher's numbers."""

    first: int
    last: int
    base_offset: int


class PublisherLane(Generic[R]):
    """``add`` records, do what ``decide`` says, and report what came of it. ``Prepare`` wants the
    leader to be asked how far the publisher has come: tell ``known``."""

    def __init__(self, publisher_id: int, batch_bytes: int) -> None:
        self.producer_id = publisher_id
        self.batch_bytes = batch_bytes
        self._waiting: deque[Waiting[R]] = deque()
        self._under_way = 0  # how many of the first parts are in the batch that is sent
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
    def next_deadline_s(self) -> float | None:
        return next_deadline_s(self._waiting)

    def expire(self, now_s: float) -> list[Resolved[R]]:
        sent = [self._waiting.popleft() for _ in range(self._under_way)]
        resolved = expired_under_way(sent, now_s) + expired(self._waiting, now_s)
        self._waiting.extendleft(reversed(sent))
        return resolved

    def add(self, sequence: int, run: R, count: int, size: int, deadline_s: float) -> None:
        """A run has come, whose records have the numbers from ``sequence`` on. Deadlines do not
        fall."""
        self._waiting.append(Waiting(Part(run, 0, count), size, deadline_s, sequence))

    def decide(self, now_s: float) -> tuple[list[Resolved[R]], Prepare | Send[R] | None]:
        """Nothing may be under way."""
        resolved = expired(self._waiting, now_s)
        if not self._waiting:
            return resolved, None
        if self._committed is None:
            return resolved, Prepare()
        while self._waiting:
            head = self._waiting[0]
            if head.sequence == self._committed + 1:
                return resolved, self._send()
            if head.sequence <= self._committed:
                resolved += self._duplicates()
            else:
                resolved += self._refused(*self._gap(head))
        return resolved, None

    def _duplicates(self) -> list[Resolved[R]]:
        """Answer for the first records, which are committed: for the records of one batch, or for
        records whose offsets are not known."""
        assert self._committed is not None
        sequence, base_offset, last = self._waiting[0].sequence, None, self._committed
        for written in self._written:
            if written.first <= sequence <= written.last:
                base_offset = written.base_offset + sequence - written.first
                last = written.last
                break
            if sequence < written.first:
                last = written.first - 1
                break
        head = self._waiting.popleft()
        if last < head.last:
            self._waiting.appendleft(head.split(last + 1 - sequence))
        return head.stored(base_offset, is_duplicate=True)

    def _gap(self, head: Waiting[R]) -> tuple[ErrorCode, str]:
        if not self._is_known:
            message = (
                f"sequence {head.sequence} of a publisher that the partition does not know, or has "
                "forgotten: a publisher begins with 0"
            )
            return ErrorCode.UNKNOWN_PRODUCER_ID, message
        assert self._committed is not None
        return (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {head.sequence}: {self._committed + 1} is next in this partition",
        )

    def _send(self) -> Send[R]:
        head = self._waiting[0]
        if head.sequence <= self._alone_to and head.part.record_count > 1:
            self._waiting.insert(1, head.split(1))
        chosen: list[Part[R]] = []
        size, following = 0, head.sequence
        for each in self._waiting:
            size += each.size
            if each.sequence != following or (chosen and size > self.batch_bytes):
                break
            chosen.append(each.part)
            following = each.last + 1
            if each.sequence <= self._alone_to:
                break
        self._under_way = len(chosen)
        return Send(head.sequence % SEQUENCES, chosen)

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
        first = self._waiting[0].sequence
        resolved: list[Resolved[R]] = []
        offset = base_offset
        for _ in range(self._under_way):
            each = self._waiting.popleft()
            resolved += each.stored(offset if base_offset >= 0 else None, is_duplicate=False)
            offset += each.part.record_count
            self._committed = each.last
        assert self._committed is not None
        self._is_known = True
        if base_offset >= 0:
            self._written.append(_Written(first, self._committed, base_offset))
        self._under_way = 0
        return resolved

    def not_acknowledged(self, *, maybe_written: bool) -> None:
        if maybe_written:
            for i in range(self._under_way):
                self._waiting[i].maybe_written = True
        self._under_way = 0
        self._committed = None

    def rejected(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        last = self._waiting[self._under_way - 1].last
        self._under_way = 0
        if last > self._waiting[0].sequence:
            self._alone_to = last
            return []
        return self._refused(code, message)

    def out_of_step(self, code: ErrorCode) -> list[Resolved[R]]:
        """Another broker, or a late request of this one, has written for the publisher."""
        self.not_acknowledged(maybe_written=False)
        return []

    def fail_all(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        self._under_way = 0
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        return [resolved for each in waiting for resolved in each.refused(code, message)]

    def _refused(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        """The first part is."""
        return self._waiting.popleft().refused(code, message)
