from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.group.deadlines import Deadlines, Timer, TimerKind


def test_the_earliest_comes_first() -> None:
    deadlines = Deadlines()
    one, two = (Timer(deadlines, TimerKind.JOIN, name) for name in "ab")
    assert deadlines.first() is None
    assert deadlines.due(99) is None
    one.set(10)
    two.set(5)
    assert deadlines.first() is two
    assert (deadlines.first_ms, Deadlines().first_ms) == (5, None)
    assert deadlines.due(4.9) is None
    assert deadlines.due(5) is two
    two.set(20)
    assert deadlines.first() is one
    two.set(1)
    assert deadlines.first() is two
    two.cancel()
    assert deadlines.first() is one
    one.cancel()
    assert deadlines.first() is None


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.none() | st.integers(0, 9), st.booleans()), max_size=30
    )
)
def test_any_moves(moves: list[tuple[int, int | None, bool]]) -> None:
    deadlines = Deadlines()
    timers = [Timer(deadlines, TimerKind.SESSION, str(each)) for each in range(4)]
    for number, at_ms, looks in moves:
        if at_ms is None:
            timers[number].cancel()
        else:
            timers[number].set(at_ms)
        if looks:
            set_to = [each.at_ms for each in timers if each.at_ms is not None]
            first = deadlines.first()
            assert (None if first is None else first.at_ms) == min(set_to, default=None)
