"""What is read for the filters of a query, beside a reader that evaluates them row by row."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from stele.ids import TopicPartition
from stele.spark.filters import Restriction, push
from stele.spark.offsets import OffsetRange

NAMES = [TopicPartition(topic, number) for topic in ("a", "b") for number in (0, 1)]
COUNT = 6
FROM_BELOW = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)
COMPARED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime.datetime


def at(time_ms: int) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(milliseconds=time_ms)


def milliseconds(value: datetime.datetime) -> int:
    return round((value - at(0)) / datetime.timedelta(milliseconds=1))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["a", "b", "c"]),
    "partition": st.integers(0, 2),
    "offset": st.integers(-1, COUNT),
    "timestamp": st.integers(-2, 9).map(at),
}


@st.composite
def some_filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from([*VALUES]))
    value = VALUES[column]
    name = (draw(st.sampled_from([column, column.upper()])),)
    if draw(st.booleans()):
        return In(name, tuple(draw(st.lists(value | st.none(), min_size=1, max_size=3))))
    return draw(st.sampled_from([*COMPARED]))(name, draw(value))  # type: ignore[call-arg]


def holds(filter_: Any, row: Row) -> bool:
    found = getattr(row, filter_.attribute[0].lower())
    if isinstance(filter_, In):
        return found in filter_.value
    return COMPARED[type(filter_)](found, filter_.value)


@given(
    st.lists(some_filters(), max_size=4),
    st.lists(st.integers(0, 9), min_size=COUNT, max_size=COUNT),
)
def test_no_row_that_is_wanted_is_left_out_and_no_other_is_read_if_spark_does_not_look(
    filters: list[Any], times: list[int]
) -> None:
    pushed = push(filters)
    restriction = pushed.restriction
    exact = [each for each in filters if not any(each is left for left in pushed.left)]
    for name in NAMES:
        rows = [Row(*name, offset, at(time_ms)) for offset, time_ms in enumerate(times)]
        wanted = {each.offset for each in rows if all(holds(one, each) for one in filters)}
        allowed = {each.offset for each in rows if all(holds(one, each) for one in exact)}
        first_ms = restriction.first_time_ms
        first = next((n for n, each in enumerate(times) if each >= (first_ms or 0)), None)
        if first is None:
            assert not wanted
            continue
        found = restriction.apply(OffsetRange(*name, 0, COUNT), first)
        read = set() if found is None else set(range(found.start, found.end))
        assert wanted <= read <= allowed
        assert not read or min(read) >= first
        assert (found is None) is (not read)
    bounds = [
        milliseconds(each.value)
        for each in filters
        if each.attribute[0].lower() == "timestamp" and isinstance(each, FROM_BELOW)
    ]
    assert restriction.first_time_ms == max([each for each in bounds if each >= 0], default=None)
    comparisons = [
        each
        for each in filters
        if each.attribute[0].lower() == "offset" and not isinstance(each, In)
    ]
    assert not any(each is left for each in comparisons for left in pushed.left)


OFFSET = ("offset",)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], (0, 6)),
        ([GreaterThan(OFFSET, 3), GreaterThan(OFFSET, 1)], (4, 6)),
        ([GreaterThanOrEqual(OFFSET, 2), GreaterThanOrEqual(OFFSET, 1)], (2, 6)),
        ([LessThan(OFFSET, 2), LessThan(OFFSET, 4)], (0, 2)),
        ([LessThanOrEqual(OFFSET, 1), LessThanOrEqual(OFFSET, 3)], (0, 2)),
        ([EqualTo(OFFSET, 2), GreaterThan(OFFSET, 0), LessThan(OFFSET, 5)], (2, 3)),
        ([GreaterThan(OFFSET, 0), EqualNullSafe(OFFSET, 2)], (2, 3)),
        ([EqualTo(OFFSET, 2), EqualTo(OFFSET, 3)], None),
        ([LessThan(OFFSET, 0)], None),
    ],
)
def test_several_bounds_hold_together(
    filters: list[Filter], bounds: tuple[int, int] | None
) -> None:
    found = push(filters).restriction.apply(OffsetRange("a", 0, 0, 6))
    assert (None if found is None else (found.start, found.end)) == bounds


def test_reading_begins_at_the_first_record_of_the_time() -> None:
    found = Restriction(first_time_ms=5).apply(OffsetRange("a", 0, 0, 6), 4)
    assert found == OffsetRange("a", 0, 4, 6)


@pytest.mark.parametrize(
    "filter_",
    [
        EqualTo(("value", "topic"), "a"),  # a field of a structure
        EqualTo(("offset", "topic"), 3),
        EqualTo(("topic",), None),
        In(("partition",), (0, None)),
        EqualTo(("offset",), "3"),
        EqualTo(("timestamp",), 3),
        IsNull(("offset",)),
        StringStartsWith(("topic",), "a"),
        EqualTo(("key",), b"k"),
    ],
)
def test_what_is_not_understood_is_left_to_spark(filter_: Filter) -> None:
    pushed = push([filter_])
    assert (pushed.restriction, pushed.left) == (Restriction(), [filter_])


def test_a_time_without_a_zone_is_one_of_utc_and_is_rounded_down() -> None:
    value = datetime.datetime(1970, 1, 1, 0, 0, 1, 500_900)
    assert push([GreaterThan(("timestamp",), value)]).restriction.first_time_ms == 1500
