"""The share partition: which member has which records, and what became of them (KIP-932)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from broker.share.acknowledgements import Run, check, runs_of
from broker.share.values import (
    NO_DEADLINE,
    NO_TIME,
    AcknowledgementBatch,
    AcknowledgeType,
    Acquired,
    DeliveryEnd,
    LetterPlan,
    Limits,
    ReadBatch,
    RecordState,
    StateBatch,
    StateWrite,
    VainDelivery,
)
from broker.share.window import Range, Window
from stele.errors import ApiError, ErrorCode

_AVAILABLE, _ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
_ACKNOWLEDGED, _ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
_ARCHIVING, _REJECTED = RecordState.ARCHIVING, RecordState.ARCHIVING_REJECTED


class SharePartition:
    """The records of one partition as one share group sees them. It is pure: times come with the
    calls, from a clock that never goes back.

    A decision of a member (accept, release, reject) counts once it is persisted: ``acknowledge``
    returns a write, whose outcome comes by ``written`` or ``failed``. What nobody waits for (the
    end of a lock, of a session) counts at once, and its write only makes the state of a later
    leader better. README.md names the invariants.
    """

    def __init__(
        self,
        start_offset: int,
        batches: Iterable[StateBatch],
        limits: Limits,
        now_ms: int = 0,
    ) -> None:
        """``batches``: the persisted state from ``start_offset`` on, in order."""
        self.limits = limits
        self._window = Window(start_offset)
        for batch in batches:
            if batch.first > self._window.end_offset:
                self._window.append(Range(self._window.end_offset, batch.first - 1))
            self._window.append(Range(*batch))
        self._holding: int | None = None  # the offset that holds back the start of the window
        self._holding_since_ms = NO_TIME
        self._move_up(now_ms)
        # No record before this offset can be acquired now. A search for one begins here.
        self._search_from = self._window.start_offset
        self._writes = 0
        # What each write decides: first and last offset, state and delivery count from then on.
        self._decisions: dict[int, list[StateBatch]] = {}
        # When locks end and when released records are due: time, first and last offset. An entry
        # may be outdated: the ranges of its offsets know better.
        self._locks: list[tuple[int, int, int]] = []
        self._dues: list[tuple[int, int, int]] = []

    # ------------------------------------------------------------------------------ questions

    @property
    def start_offset(self) -> int:
        """The first offset that is not done (SPSO)."""
        return self._window.start_offset

    @property
    def end_offset(self) -> int:
        """The first offset that was never read (SPEO + 1)."""
        return self._window.end_offset

    @property
    def done_count(self) -> int:
        """Records from ``start_offset`` on that are done already."""
        return self._window.final_count

    @property
    def complete_count(self) -> int:
        """Records from ``start_offset`` on that no member gets any more (KIP-1226: delivery
        complete)."""
        return self._window.final_count + self._window.archiving_count

    @property
    def archiving_count(self) -> int:
        """Records in the window whose dead letters are not written yet."""
        return self._window.archiving_count

    @property
    def next_deadline_ms(self) -> int:
        """When ``advance`` has something to do next, or a little before; NO_DEADLINE: never."""
        heads = [heap[0][0] for heap in (self._locks, self._dues) if heap]
        return min(heads, default=NO_DEADLINE)

    @property
    def start_since_ms(self) -> int:
        """Since when the record at ``start_offset`` is the first of the window; NO_TIME: no record
        is in the window. The time before this leader is not known."""
        return self._holding_since_ms

    def ranges(self) -> Iterable[Range]:
        """All records in the window, in their order, to be shown."""
        return self._window

    def fetch_offset(self) -> int | None:
        """The offset from which the leader should read for the next member. None: there is nothing
        to deliver before a record is released or done."""
        for each in self._window.from_offset(self._search_from):
            if each.state is _AVAILABLE and not each.due_ms:
                self._search_from = each.first
                return each.first
        self._search_from = self._window.end_offset
        is_full = len(self._window) >= self.limits.partition_max_record_locks
        return None if is_full else self._search_from

    # ------------------------------------------------------------------------------ deliveries

    def acquire(
        self,
        member: str,
        offset: int,
        read: Sequence[ReadBatch],
        max_records: int,
        now_ms: int,
        *,
        is_strict: bool = False,
    ) -> list[Acquired]:
        """Give records to a member, out of what the leader has read from ``offset`` on.

        The number of records may exceed ``max_records`` up to the end of a batch, unless
        ``is_strict`` (KIP-1206). Offsets without a record are done: the log has none there.
        A suspect (``Limits.suspect_count``) is delivered without others, and in ever smaller parts.
        """
        if offset > self._window.end_offset:
            raise ValueError(f"read from {offset} on, after {self._window.end_offset}")
        taken: list[Range] = []
        count, position = 0, offset
        for batch in read:
            if batch.last < position:
                continue
            if batch.first > position:
                self._note(position, batch.first - 1, _ARCHIVED)
            self._note(batch.first, batch.last, _AVAILABLE if batch.is_deliverable else _ARCHIVED)
            position = batch.last + 1
            count += self._take(
                batch, max_records - count if is_strict else len(self._window), taken
            )
            is_alone = bool(taken) and taken[0].count >= self.limits.suspect_count
            if count >= max_records or is_alone:
                break
        lock_until_ms = now_ms + self.limits.record_lock_duration_ms
        for each in taken:
            self._window.change(each, _ACQUIRED)
            each.count += 1
            each.holder, each.lock_until_ms, each.acquired_ms = member, lock_until_ms, now_ms
            heapq.heappush(self._locks, (lock_until_ms, each.first, each.last))
        self._move_up(now_ms)
        return [Acquired(each.first, each.last, each.count) for each in taken]

    def _note(self, first: int, last: int, state: RecordState) -> None:
        """Offsets in the window that are available and have no record are done. Offsets behind the
        window come into it while it has room."""
        window = self._window
        if state is _ARCHIVED:
            if not len(window):
                window.begin_at(last + 1)  # however many they are
                return
            for each in window.exactly(first, last):
                if each.state is _AVAILABLE:
                    window.change(each, _ARCHIVED)
        room = self.limits.partition_max_record_locks - len(window)
        first = max(first, window.end_offset)
        last = min(last, first + room - 1)
        if first <= last:
            window.append(Range(first, last, state))

    def _take(self, batch: ReadBatch, max_records: int, taken: list[Range]) -> int:
        """Add what is available of a batch. Returns the number of records."""
        count = 0
        for each in self._window.exactly(batch.first, batch.last):
            if each.state is not _AVAILABLE or each.due_ms:
                continue
            if each.count >= self.limits.suspect_count:
                if not taken:
                    taken.append(self._part_of(each, max_records))
                    count = len(taken[0])
                break
            part = self._first_of(each, max_records - count)
            taken.append(part)
            count += len(part)
            if count >= max_records:
                break
        return count

    def _first_of(self, each: Range, count: int) -> Range:
        """At most so many of its records."""
        return self._window.exactly(each.first, min(each.last, each.first + count - 1))[0]

    def _part_of(self, suspect: Range, max_records: int) -> Range:
        """The first half of a range, a quarter of the rest at the next delivery, and so on; one
        record at the last delivery."""
        size = len(suspect) >> (suspect.count - self.limits.suspect_count + 1)
        if suspect.count >= self.limits.delivery_count_limit - 1:
            size = 1
        return self._first_of(suspect, max(min(size, max_records), 1))

    # ------------------------------------------------------------------------------ decisions

    def acknowledge(
        self, member: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> StateWrite | None:
        """Take a member's decisions, all or none. They count when the write is persisted; without
        one they count now. Offsets that are done and left the window are skipped.

        Raises ApiError INVALID_REQUEST (``acknowledgements.check``), INVALID_RECORD_STATE: the
        member does not have a record, or it has decided about it already.
        """
        check(batches)
        runs = list(runs_of(batches, self._window.start_offset))
        for run in runs:
            self._check_run(member, run)
        number = self._writes
        decided: list[StateBatch] = []
        for run in runs:
            for each in self._window.exactly(run.first, run.last):
                if run.type is AcknowledgeType.RENEW:
                    each.lock_until_ms = now_ms + self.limits.record_lock_duration_ms
                    heapq.heappush(self._locks, (each.lock_until_ms, each.first, each.last))
                else:
                    each.write = number
                    state = self._outcome(run.type, each.count)
                    decided.append(StateBatch(each.first, each.last, state, each.count))
        return self._write(decided, is_decision=True)

    def _check_run(self, member: str, run: Run) -> None:
        if run.type is AcknowledgeType.RENEW and not self.limits.renew_acknowledge_enable:
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE,
                "locks cannot be renewed: share.renew.acknowledge.enable is false",
            )
        offset = run.first
        if run.last < self._window.end_offset:
            for each in self._window.from_offset(run.first):
                if each.first > run.last:
                    return
                offset = max(each.first, run.first)
                if each.holder != member or each.write >= 0:
                    break
            else:
                return
        raise ApiError(
            ErrorCode.INVALID_RECORD_STATE,
            f"member {member} has no record at offset {offset}: its lock may have ended",
        )

    def _outcome(self, kind: AcknowledgeType, count: int) -> RecordState:
        if kind is AcknowledgeType.ACCEPT:
            return _ACKNOWLEDGED
        if kind is AcknowledgeType.RELEASE:
            return self._after_delivery(count)
        is_rejected = kind is AcknowledgeType.REJECT
        return _REJECTED if is_rejected and self.limits.has_dead_letters else _ARCHIVED

    def _after_delivery(self, count: int) -> RecordState:
        """The state of a record that was delivered in vain."""
        if count < self.limits.delivery_count_limit:
            return _AVAILABLE
        return _ARCHIVING if self.limits.has_dead_letters else _ARCHIVED

    def _write(self, batches: list[StateBatch], *, is_decision: bool) -> StateWrite | None:
        if not batches:
            return None
        number = self._writes
        self._writes += 1
        if is_decision:
            self._decisions[number] = batches
        # Only persisted decisions move the start offset. The decisions of this write could move it
        # above a record whose own write fails.
        return StateWrite(number, self._window.start_offset, tuple(batches))

    def written(self, number: int, now_ms: int) -> None:
        """A write is persisted."""
        for first, last, state, count in self._decisions.pop(number, ()):
            for each in self._decided(number, first, last):
                self._settle(each, state, count, now_ms, DeliveryEnd.RELEASED)
            self._window.join(first, last)
        self._move_up(now_ms)

    def failed(self, number: int, now_ms: int) -> StateWrite | None:
        """A write was refused or its outcome is unknown: the member has its records again, if their
        lock lasts. The write returned is for records whose lock has ended."""
        ended: list[StateBatch] = []
        for first, last, _, _ in self._decisions.pop(number, ()):
            ended += [
                self._end_lock(each, now_ms)
                for each in self._decided(number, first, last)
                if each.state is _ACQUIRED and each.lock_until_ms <= now_ms
            ]
            self._window.join(first, last)
        return self._settled(ended, now_ms)

    # ------------------------------------------------------------------------------ dead letters

    def letters_due(self, most: int) -> list[StateBatch]:
        """The first records whose dead letters are not written yet, at most so many."""
        due: list[StateBatch] = []
        left = min(most, self.archiving_count)
        for each in self._window:
            if left <= 0:
                break
            if each.state.is_archiving and each.write < 0:
                last = min(each.last, each.first + left - 1)
                due.append(StateBatch(each.first, last, each.state, each.count))
                left -= last - each.first + 1
        return due

    def archive(self, ranges: Iterable[tuple[int, int]], letters: LetterPlan | None) -> StateWrite:
        """Their letters are written, or cannot be: they are done when the write is persisted.
        ``letters`` is persisted with it. Records that have left the window are skipped."""
        number = self._writes
        decided: list[StateBatch] = []
        for first, last in ranges:
            if last < self._window.start_offset:
                continue
            for each in self._window.exactly(max(first, self._window.start_offset), last):
                if each.state.is_archiving:
                    each.write = number
                    decided.append(StateBatch(each.first, each.last, _ARCHIVED, each.count))
        write = self._write(decided, is_decision=True) or self.restate()
        return write._replace(letters=letters, is_of_letters=True)

    # ------------------------------------------------------------------------------ endings

    def advance(self, now_ms: int) -> StateWrite | None:
        """End the locks whose time is over, and let released records be delivered that are due."""
        while self._dues and self._dues[0][0] <= now_ms:
            _, first, last = heapq.heappop(self._dues)
            for each in self._window.exactly(first, last):
                if each.due_ms <= now_ms:
                    each.due_ms = 0
                    self._search_from = min(self._search_from, each.first)
            self._window.join(first, last)
        ended: list[StateBatch] = []
        while self._locks and self._locks[0][0] <= now_ms:
            _, first, last = heapq.heappop(self._locks)
            for each in self._window.exactly(first, last):
                # A decision whose write is under way keeps its records until the outcome.
                is_over = each.state is _ACQUIRED and each.lock_until_ms <= now_ms
                if is_over and each.write < 0:
                    ended.append(self._end_lock(each, now_ms))
        return self._settled(ended, now_ms)

    def _end_lock(self, each: Range, now_ms: int) -> StateBatch:
        state = self._after_delivery(each.count)
        self._settle(each, state, each.count, now_ms, DeliveryEnd.LOCK_ENDED)
        return StateBatch(each.first, each.last, state, each.count)

    def end_session(self, member: str, now_ms: int) -> StateWrite | None:
        """A member is gone. Its records are available at once, and this delivery does not count:
        the records may never have reached the application."""
        ended: list[StateBatch] = []
        for each in list(self._window):
            if each.holder == member and each.write < 0:
                count = each.count - 1
                self._settle(each, _AVAILABLE, count, now_ms, DeliveryEnd.SESSION_ENDED)
                ended.append(StateBatch(each.first, each.last, _AVAILABLE, each.count))
        return self._settled(ended, now_ms)

    def log_begins_at(self, offset: int, now_ms: int) -> StateWrite | None:
        """Retention or DeleteRecords took the records before ``offset``: they are done."""
        if offset <= self._window.start_offset:
            return None
        self._window.begin_at(offset)
        self._move_up(now_ms)
        return self.restate()

    def restate(self) -> StateWrite:
        """A write of nothing but the start offset."""
        number = self._writes
        self._writes += 1
        return StateWrite(number, self._window.start_offset, ())

    def _settled(self, ended: list[StateBatch], now_ms: int) -> StateWrite | None:
        for first, last, _, _ in ended:
            self._window.join(first, last)
        write = self._write(ended, is_decision=False)
        self._move_up(now_ms)
        return write

    def _move_up(self, now_ms: int) -> None:
        window = self._window
        window.move_up()
        holding = window.start_offset if len(window) else None
        if holding != self._holding:
            self._holding = holding
            self._holding_since_ms = NO_TIME if holding is None else now_ms

    def _settle(
        self, each: Range, state: RecordState, count: int, now_ms: int, end: DeliveryEnd
    ) -> None:
        self._window.change(each, state)
        is_vain = state is _AVAILABLE
        each.vain = VainDelivery(end, each.holder, now_ms, each.last) if is_vain else None
        each.count = count
        each.holder, each.acquired_ms, each.lock_until_ms, each.due_ms = "", 0, 0, 0
        if not is_vain:
            return
        is_delayed = end is not DeliveryEnd.SESSION_ENDED
        delay_ms = self.limits.backoff_after(count) if is_delayed else 0
        if delay_ms:
            each.due_ms = now_ms + delay_ms
            heapq.heappush(self._dues, (each.due_ms, each.first, each.last))
        else:
            self._search_from = min(self._search_from, each.first)

    def _decided(self, number: int, first: int, last: int) -> list[Range]:
        """The records that waited for this write. They wait for it no more."""
        found = [each for each in self._window.exactly(first, last) if each.write == number]
        for each in found:
            each.write = -1
        return found
