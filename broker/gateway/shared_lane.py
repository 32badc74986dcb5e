"""Records of many streams for one partition, which this broker numbers. Pure.

The broker is an idempotent producer (KIP-98) with one batch under way. A batch that may have been
written is sent again as it was, with the same sequences, until a leader acknowledges it. So no
record is written twice, whichever leader answers, and records keep their order.

The producer id ends where nobody can know any more what of it is in the log:

- A batch had no outcome before its time was over. A late request may still write it. So its
  sequences are never used again.
- The leader expects another sequence: it lost records by an unclean election.

The next batch has another id then, and begins with sequence 0. Records that may have been written
are refused and said to be so. Without acks=all a lane has no numbers: the next leader may lack
acknowledged records, and would take every later batch for one with a gap.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import Final, Generic

from broker.gateway.lanes import (
    EXPIRED,
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

NO_ID: Final = -1
_SEQUENCES: Final = 1 << 31


class SharedLane(Generic[R]):
    """``add`` records, do what ``decide`` says, and report what came of it. ``Prepare`` asks for a
    new producer id: tell ``renewed``."""

    def __init__(self, batch_bytes: int, *, is_numbered: bool) -> None:
        self.producer_id = NO_ID
        self.batch_bytes = batch_bytes
        self._is_numbered = is_numbered
        self._next_sequence = 0
        self._waiting: deque[Waiting[R]] = deque()
        # The batch that was sent and is not resolved. Its records have the next sequences.
        self._batch: list[Waiting[R]] = []
        # A batch was refused. This number of the first records is sent one by one, to find the bad
        # one.
        self._alone = 0

    @property
    def is_empty(self) -> bool:
        return not self._waiting and not self._batch

    def add(self, run: R, count: int, size: int, deadline_s: float) -> None:
        """A run has come. Deadlines do not fall."""
        self._waiting.append(Waiting(Part(run, 0, count), size, deadline_s))

    def decide(self, now_s: float) -> tuple[list[Resolved[R]], Prepare | Send[R] | None]:
        """Nothing may be under way."""
        resolved: list[Resolved[R]] = []
        if self._batch and self._batch[0].deadline_s <= now_s:
            resolved = self._give_up(ErrorCode.REQUEST_TIMED_OUT, EXPIRED)
        if not self._batch:
            resolved += expired(self._waiting, now_s)
        if self.is_empty:
            return resolved, None
        if self._is_numbered and self.producer_id == NO_ID:
            return resolved, Prepare()
        if not self._batch:
            self._cut_batch()
        sequence = self._next_sequence if self._is_numbered else -1
        return resolved, Send(sequence, [each.part for each in self._batch])

    @property
    def next_deadline_s(self) -> float | None:
        return next_deadline_s(chain(self._batch, self._waiting))

    def expire(self, now_s: float) -> list[Resolved[R]]:
        return expired_under_way(self._batch, now_s) + expired(self._waiting, now_s)

    def _cut_batch(self) -> None:
        if self._alone:
            head = self._waiting.popleft()
            if head.part.record_count > 1:
                self._waiting.appendleft(head.split(1))
            self._alone -= 1
            self._batch = [head]
            return
        size = 0
        while self._waiting and (not size or size + self._waiting[0].size <= self.batch_bytes):
            size += self._waiting[0].size
            self._batch.append(self._waiting.popleft())

    # ------------------------------------------------------------------------ reports

    def renewed(self, producer_id: int) -> None:
        """The lane has this id, which nobody has ever used."""
        self.producer_id = producer_id
        self._next_sequence = 0

    def acknowledged(self, base_offset: int) -> list[Resolved[R]]:
        batch, self._batch = self._batch, []
        resolved: list[Resolved[R]] = []
        offset = base_offset
        for each in batch:
            resolved += each.stored(offset if base_offset >= 0 else None, is_duplicate=False)
            offset += each.part.record_count
        count = sum(each.part.record_count for each in batch)
        self._next_sequence = (self._next_sequence + count) % _SEQUENCES
        return resolved

    def not_acknowledged(self, *, maybe_written: bool) -> None:
        if maybe_written:
            for each in self._batch:
                each.maybe_written = True
        elif not self._may_be_written:
            self._dissolve()

    def rejected(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        count = sum(each.part.record_count for each in self._batch)
        if self._may_be_written or count == 1:
            return self._give_up(code, message)
        self._alone += sum(each.part.record_count for each in self._batch if not each.is_told)
        self._dissolve()
        return []

    def out_of_step(self, code: ErrorCode) -> list[Resolved[R]]:
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return self.acknowledged(-1)
        if self._may_be_written:
            message = "the leader does not know what was written before: records were lost"
            return self._give_up(ErrorCode.UNKNOWN_PRODUCER_ID, message)
        self.producer_id = NO_ID
        self._dissolve()
        return []

    def fail_all(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        resolved = self._give_up(code, message)
        while self._waiting:
            resolved += self._waiting.popleft().refused(code, message)
        self._alone = 0
        return resolved

    # ------------------------------------------------------------------------- inside

    @property
    def _may_be_written(self) -> bool:
        return any(each.maybe_written for each in self._batch)

    def _give_up(self, code: ErrorCode, message: str) -> list[Resolved[R]]:
        """Refuse the batch. If it may have been written, its sequences are used up."""
        if self._may_be_written:
            self.producer_id = NO_ID
        batch, self._batch = self._batch, []
        return [resolved for each in batch for resolved in each.refused(code, message)]

    def _dissolve(self) -> None:
        """The batch was surely not written. The next one may be cut in another way."""
        self._waiting.extendleft(reversed([each for each in self._batch if not each.is_told]))
        self._batch = []
