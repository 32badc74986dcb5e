"""Whether two partitions have the same records in the same order: pure.

Offsets may differ, as in a mirror that began when the first records were deleted already, or whose
source has markers of transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stele.records import ConsumerRecord
    from stele.wire.record import Record

_FIELDS: Final = ("key", "value", "headers", "timestamp_ms")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first pair of records that are not the same. ``fields``: in what they differ."""

    source_offset: int
    target_offset: int
    fields: tuple[str, ...]


class _Side:
    """Records of one side without a partner yet. Without an other side they are only counted."""

    def __init__(self) -> None:
        self.waiting: deque[ConsumerRecord | Record] = deque()
        self.is_over = False
        self.alone = 0


class Comparison:
    """Takes the records of both sides as they come. After the first difference it takes no more."""

    def __init__(self) -> None:
        self.same = 0
        self.difference: Difference | None = None
        self._source, self._target = _Side(), _Side()

    @property
    def missing(self) -> int:
        """Records of the source without a partner, once the target is over."""
        return self._source.alone

    @property
    def surplus(self) -> int:
        """Records of the target without a partner, once the source is over."""
        return self._target.alone

    @property
    def wants_source(self) -> bool:
        """Which side is to be read next: the one that has given less. Both may be over."""
        if self._source.is_over or self._target.is_over:
            return not self._source.is_over
        return len(self._source.waiting) <= len(self._target.waiting)

    @property
    def is_over(self) -> bool:
        return self.difference is not None or (self._source.is_over and self._target.is_over)

    def take(
        self, records: Sequence[ConsumerRecord] | Sequence[Record] | None, *, of_source: bool
    ) -> None:
        """Compare further. None: the side is over."""
        side = self._source if of_source else self._target
        if records is None:
            side.is_over = True
        else:
            side.waiting.extend(records)
        ours, theirs = self._source.waiting, self._target.waiting
        while ours and theirs:
            fields = tuple(
                name for name in _FIELDS if getattr(ours[0], name) != getattr(theirs[0], name)
            )
            if fields:
                self.difference = Difference(ours[0].offset, theirs[0].offset, fields)
                return
            ours.popleft()
            theirs.popleft()
            self.same += 1
        for one, other in ((self._source, self._target), (self._target, self._source)):
            if other.is_over:
                one.alone += len(one.waiting)
                one.waiting.clear()
