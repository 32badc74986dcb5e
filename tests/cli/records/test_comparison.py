"""Records of two sides in any portions, against a twin that has both as whole lists."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cli.records.comparison import Comparison, Difference
from stele.records import ConsumerRecord, TimestampType

SIDES = st.lists(st.binary(max_size=1), max_size=30)


def record(offset: int, value: bytes, key: bytes | None = None, time_ms: int = 1) -> ConsumerRecord:
    return ConsumerRecord(
        "t", 0, offset, time_ms, TimestampType.CREATE_TIME, key, value, (), leader_epoch=0
    )


def portions(
    values: Sequence[bytes], first: int, sizes: Sequence[int]
) -> list[list[ConsumerRecord]]:
    """The records from an offset on, in portions of these sizes and a last one."""
    records = [record(first + number, value) for number, value in enumerate(values)]
    found = []
    for size in sizes:
        found.append(records[:size])
        records = records[size:]
    return [*found, records]


def compared(source: list[list[ConsumerRecord]], target: list[list[ConsumerRecord]]) -> Comparison:
    """Read as the command reads."""
    comparison = Comparison()
    sides = {True: iter(source), False: iter(target)}
    while not comparison.is_over:
        of_source = comparison.wants_source
        comparison.take(next(sides[of_source], None), of_source=of_source)
    return comparison


@given(
    SIDES, SIDES, st.lists(st.integers(0, 5), max_size=8), st.lists(st.integers(0, 5), max_size=8)
)
def test_portions_make_no_difference(
    ours: list[bytes], theirs: list[bytes], our_sizes: list[int], their_sizes: list[int]
) -> None:
    found = compared(portions(ours, 10, our_sizes), portions(theirs, 0, their_sizes))
    shared = min(len(ours), len(theirs))
    same = next((n for n in range(shared) if ours[n] != theirs[n]), shared)
    assert found.same == same
    if same < shared:
        assert found.difference == Difference(10 + same, same, ("value",))
    else:
        assert found.difference is None
        assert (found.missing, found.surplus) == (len(ours) - shared, len(theirs) - shared)


def test_all_that_differs_is_named() -> None:
    comparison = Comparison()
    comparison.take([record(7, b"a", b"k", 5)], of_source=True)
    comparison.take([record(2, b"b", None, 6)], of_source=False)
    assert comparison.difference == Difference(7, 2, ("key", "value", "timestamp_ms"))


def test_the_side_that_has_given_less_is_read_next() -> None:
    comparison = Comparison()
    asked = [comparison.wants_source]
    comparison.take([record(0, b"a")], of_source=True)
    asked.append(comparison.wants_source)
    comparison.take(None, of_source=False)
    asked.append(comparison.wants_source)
    assert asked == [True, False, True]
