"""The bounds that the filters of a query set for topic, partition, offset and timestamp. Pure.

A filter on these columns makes ranges of offsets smaller. Spark still evaluates every filter that
does more than that, or that may.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from stele.ids import TopicPartition
from stele.spark.offsets import OffsetRange

_MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Restriction:
    """Only these rows are wanted."""

    topics: frozenset[str] | None = None
    """None: all; the same below."""
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = _MAX_OFFSET
    """The offset after the last one."""
    first_time_ms: int | None = None
    """No record before the first one at or after this time is wanted. Later ones may be older:
    times need not rise."""

    def has(self, name: TopicPartition) -> bool:
        return (self.topics is None or name.topic in self.topics) and (
            self.partitions is None or name.partition in self.partitions
        )

    def apply(self, range_: OffsetRange, first_at_time: int | None = None) -> OffsetRange | None:
        """The rest of a range; None: nothing. ``first_at_time``: the first offset at or after
        ``first_time_ms``."""
        if not self.has(range_.name):
            return None
        start = max(range_.start, self.first_offset, first_at_time or 0)
        end = min(range_.end, self.end_offset)
        return replace(range_, start=start, end=end) if start < end else None


@dataclass(slots=True)
class PushedFilters:
    restriction: Restriction = field(default_factory=Restriction)
    left: list[Filter] = field(default_factory=list)
    """Spark must evaluate these."""


def push(filters: Sequence[Filter]) -> PushedFilters:
    """The restriction that follows from all filters together."""
    pushed = PushedFilters()
    for each in filters:
        found, is_exact = _restricted(pushed.restriction, each)
        pushed.restriction = found
        if not is_exact:
            pushed.left.append(each)
    return pushed


def _restricted(known: Restriction, filter_: Filter) -> tuple[Restriction, bool]:
    """The restriction with one filter more, and whether it says everything that the filter says."""
    column, value = getattr(filter_, "attribute", None), getattr(filter_, "value", None)
    if value is None or column is None or len(column) != 1:
        return known, False
    name = column[0].lower()
    if name in ("topic", "partition") and isinstance(filter_, (EqualTo, EqualNullSafe, In)):
        values = frozenset(value if isinstance(filter_, In) else (value,))
        if None in values:
            return known, False
        if name == "topic":
            topics = values if known.topics is None else known.topics & values
            return replace(known, topics=topics), True
        numbers = values if known.partitions is None else known.partitions & values
        return replace(known, partitions=numbers), True
    if name == "offset" and isinstance(value, int):
        return _offsets(known, filter_, value)
    if name == "timestamp" and isinstance(value, datetime.datetime):
        return _times(known, filter_, value), False
    return known, False


def _offsets(known: Restriction, filter_: Filter, value: int) -> tuple[Restriction, bool]:
    first, end = known.first_offset, known.end_offset
    if isinstance(filter_, (EqualTo, EqualNullSafe)):
        first, end = max(first, value), min(end, value + 1)
    elif isinstance(filter_, GreaterThan):
        first = max(first, value + 1)
    elif isinstance(filter_, GreaterThanOrEqual):
        first = max(first, value)
    elif isinstance(filter_, LessThan):
        end = min(end, value)
    elif isinstance(filter_, LessThanOrEqual):
        end = min(end, value + 1)
    else:
        return known, False
    return replace(known, first_offset=first, end_offset=end), True


def _times(known: Restriction, filter_: Filter, value: datetime.datetime) -> Restriction:
    if not isinstance(filter_, (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)):
        return known
    time_ms = _milliseconds(value)
    if time_ms < 0:
        return known
    return replace(known, first_time_ms=max(time_ms, known.first_time_ms or 0))


def _milliseconds(value: datetime.datetime) -> int:
    """Rounded down. A value without a time zone is one of UTC, as Spark passes it."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (value - epoch) // datetime.timedelta(milliseconds=1)
