"""The records in flight of a share partition: ranges of offsets that have one state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from broker.share.values import RecordState, VainDelivery

_ACKNOWLEDGED, _ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
_ARCHIVING, _REJECTED = RecordState.ARCHIVING, RecordState.ARCHIVING_REJECTED


class Range:
    """Records from ``first`` to ``last`` with everything that they have in common."""

    __slots__ = (
        "acquired_ms",
        "count",
        "due_ms",
        "first",
        "holder",
        "last",
        "lock_until_ms",
        "state",
        "vain",
        "write",
    )

    def __init__(
        self, first: int, last: int, state: RecordState = RecordState.AVAILABLE, count: int = 0
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count  # deliveries so far
        self.holder = ""  # the member that has acquired them; "" unless they are acquired
        self.acquired_ms = 0
        self.lock_until_ms = 0
        self.due_ms = 0  # they are not delivered before; 0 unless they are available
        self.write = -1  # the number of the write that decides them; -1: no write does
        self.vain: VainDelivery | None = None  # None: there was none, or it is not known

    def __len__(self) -> int:
        return self.last - self.first + 1

    def cut_before(self, offset: int) -> Range:
        """Begin at ``offset`` from now on. Returns the part before."""
        before = Range(self.first, offset - 1, self.state, self.count)
        before.holder, before.lock_until_ms = self.holder, self.lock_until_ms
        before.acquired_ms = self.acquired_ms
        before.due_ms, before.write = self.due_ms, self.write
        before.vain = self.vain
        if self.vain is not None:
            if self.vain.last < offset:
                self.vain = None
            else:
                before.vain = self.vain._replace(last=offset - 1)
        self.first = offset
        return before

    def take(self, after: Range) -> None:
        """Become one with the range behind it, which continues it."""
        known, more = self.vain, after.vain
        if known is not None and more is not None and known.last == self.last:
            self.vain = more if known[:3] == more[:3] else known
        self.last = after.last

    def continues(self, before: Range) -> bool:
        """Whether it may become one with the range before it."""
        if self.state is not before.state or self.write != before.write:
            return False
        if self.state.is_final:
            return True  # nobody asks any more how often they were delivered
        return (self.count, self.due_ms, self.holder, self.lock_until_ms, self.acquired_ms) == (
            before.count,
            before.due_ms,
            before.holder,
            before.lock_until_ms,
            before.acquired_ms,
        )


class Window:
    """The ranges of all offsets from ``start_offset`` up to ``end_offset``, without a hole.

    The first range is not final: the window moves up over records that are done.
    """

    __slots__ = ("_ranges", "archiving_count", "final_count", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.final_count = 0  # records in the window that are done
        self.archiving_count = 0  # records in the window whose dead letters are not written yet
        self._ranges: list[Range] = []

    def __len__(self) -> int:
        return self.end_offset - self.start_offset

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    @property
    def end_offset(self) -> int:
        """The first offset that was never read."""
        return self._ranges[-1].last + 1 if self._ranges else self.start_offset

    @property
    def range_count(self) -> int:
        return len(self._ranges)

    def append(self, new: Range) -> None:
        """Add the records from ``end_offset`` on."""
        assert new.first == self.end_offset
        self._ranges.append(new)
        self._count(new, 1)

    def from_offset(self, offset: int) -> Iterator[Range]:
        """The ranges from the one with ``offset`` on. The caller may not change the window
        meanwhile."""
        at = self._index(offset)
        while at < len(self._ranges):
            yield self._ranges[at]
            at += 1

    def exactly(self, first: int, last: int) -> list[Range]:
        """The ranges of the offsets from ``first`` to ``last``, as far as these lie in the window.
        A range that reaches beyond them is cut."""
        at = self._cut(first)
        end = self._cut(last + 1)
        return self._ranges[at:end]

    def change(self, each: Range, state: RecordState) -> None:
        """Give a range of this window another state."""
        self._count(each, -1)
        each.state = state
        self._count(each, 1)

    def _count(self, each: Range, sign: int) -> None:
        # Each change of a range comes here twice: comparisons cost less than properties of states.
        state = each.state
        if state is _ACKNOWLEDGED or state is _ARCHIVED:
            self.final_count += sign * len(each)
        elif state is _ARCHIVING or state is _REJECTED:
            self.archiving_count += sign * len(each)

    def join(self, first: int, last: int) -> None:
        """Let ranges that have become alike be one again, around the offsets ``first`` to
        ``last``."""
        at = max(self._index(first), 1)
        while at < len(self._ranges) and self._ranges[at].first <= last + 1:
            before, each = self._ranges[at - 1], self._ranges[at]
            if each.continues(before):
                before.take(each)
                del self._ranges[at]
            else:
                at += 1

    def move_up(self) -> None:
        """Leave behind what is done at the beginning."""
        done = 0
        for each in self._ranges:
            if not each.state.is_final:
                break
            self._leave(each)
            done += 1
        del self._ranges[:done]

    def begin_at(self, offset: int) -> None:
        """Leave behind everything below ``offset``, whatever its state."""
        at = self._cut(offset)
        for each in self._ranges[:at]:
            self._leave(each)
        del self._ranges[:at]
        self.start_offset = offset

    def _leave(self, each: Range) -> None:
        self._count(each, -1)
        self.start_offset = each.last + 1

    def _index(self, offset: int) -> int:
        """The index of the range with this offset; behind the window the number of ranges."""
        if offset >= self.end_offset:
            return len(self._ranges)
        return max(bisect_right(self._ranges, offset, key=lambda each: each.first) - 1, 0)

    def _cut(self, offset: int) -> int:
        """Have a range begin at ``offset``. Returns its index."""
        at = self._index(offset)
        if at < len(self._ranges) and self._ranges[at].first < offset:
            self._ranges.insert(at, self._ranges[at].cut_before(offset))
            at += 1
        return at
