from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stele.spark.numbers import MOST_RANGES, Numbers

SETS = st.frozensets(st.integers(0, 30))


def numbers(of: frozenset[int]) -> Numbers:
    found = Numbers()
    for number in sorted(of, key=lambda n: (n % 7, n)):
        found = found.with_number(number)
    return found


@given(SETS, SETS)
def test_they_are_a_set(one: frozenset[int], other: frozenset[int]) -> None:
    both = numbers(one).union(numbers(other))
    assert {n for n in range(32) if n in both} == one | other
    assert both == numbers(one | other)


def test_numbers_that_follow_each_other_take_no_room() -> None:
    assert numbers(frozenset(range(1000))).ranges == ((0, 999),)


def test_the_lowest_are_forgotten_beyond_a_bound() -> None:
    found = Numbers()
    for number in range(0, 2 * MOST_RANGES + 4, 2):
        found = found.with_number(number)
    assert (len(found.ranges), found.floor) == (MOST_RANGES, 3)
    assert 2 not in found
    assert 4 in found
