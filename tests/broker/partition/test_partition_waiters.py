"""Waiting for offsets, compared with a list that is searched."""

from __future__ import annotations

from weakref import WeakSet

from hypothesis import given
from hypothesis import strategies as st

from broker.partition.waiters import OffsetWaiters


def test_tokens_come_by_offset_and_among_equals_by_arrival() -> None:
    waiters = OffsetWaiters()
    for offset, token in ((5, "a"), (3, "b"), (5, "c"), (9, "d")):
        waiters.add(offset, token)
    assert waiters.reach(2) == ()
    assert waiters.reach(5) == ("b", "a", "c")
    assert len(waiters.live) == 1
    assert waiters.drain() == ("d",)
    assert waiters.reach(100) == ()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 20)),
            st.tuples(st.just("reach"), st.integers(0, 20)),
            st.tuples(st.just("withdraw"), st.integers(0, 50)),
        ),
        max_size=300,
    )
)
def test_it_behaves_like_a_plain_list(steps: list[tuple[str, int]]) -> None:
    waiters = OffsetWaiters()
    twin: list[tuple[int, int]] = []
    numbers: list[int] = []
    for kind, value in steps:
        if kind == "add":
            token = len(numbers)
            numbers.append(waiters.add(value, token))
            twin.append((value, token))
        elif kind == "reach":
            due = sorted(each for each in twin if each[0] <= value)
            twin = [each for each in twin if each[0] > value]
            assert waiters.reach(value) == tuple(token for _, token in due)
        elif value < len(numbers):
            waiters.withdraw(numbers[value])
            twin = [each for each in twin if each[1] != value]
        assert len(waiters.live) == len(twin)
    assert waiters.drain() == tuple(token for _, token in twin)


class Request:
    """A token that shows whether it is still referenced."""


def test_withdrawn_ones_do_not_pile_up() -> None:
    waiters = OffsetWaiters()
    kept: WeakSet[Request] = WeakSet()
    for offset in range(10_000):
        request = Request()
        kept.add(request)
        waiters.withdraw(waiters.add(offset, request))
        del request
    assert len(kept) <= 65
