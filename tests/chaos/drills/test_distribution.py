"""Many runs of a drill against its budgets."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.drills.distribution import Distribution, Judged, distributions, percentile
from chaos.drills.history import Expectations, Zombie
from chaos.drills.outages import Outage
from chaos.drills.verdict import judge
from tests.support.histories import green


def run_with(write_outage_ms: float | None, *, outcome: str = "", drill: str = "d") -> Judged:
    expectations = Expectations(write_outage_ms=2_000, zombie=bool(outcome))
    history = green(expectations)
    header = dataclasses.replace(history.header, drill=drill)
    events = history.events + ((Zombie(900, 101, 0, outcome),) if outcome else ())
    history = dataclasses.replace(history, header=header, events=events)
    verdict = judge(history)
    writes = () if write_outage_ms is None else (Outage(0, 0, write_outage_ms), Outage(1, 0, 1))
    times = dataclasses.replace(verdict.times, writes=writes)
    return history, dataclasses.replace(verdict, times=times)


def of(judged: list[Judged], measure: str) -> Distribution:
    (found,) = [each for each in distributions(judged) if each.measure == measure]
    return found


def test_a_run_counts_with_its_worst_partition() -> None:
    found = of([run_with(each) for each in (300, 100, 200)], "write outage")
    assert found == Distribution("d", "write outage", 3, 200, 300, 300, 2_000)
    assert found.is_within


def test_one_slow_run_of_twenty_misses_the_budget_and_one_of_two_hundred_does_not() -> None:
    quick = [run_with(100)]
    assert not of(quick * 19 + [run_with(2_001)], "write outage").is_within
    assert of(quick * 199 + [run_with(2_001)], "write outage").is_within


def test_what_was_not_measured_is_within_no_budget() -> None:
    found = of([run_with(100), run_with(None)], "write outage")
    assert found.most == math.inf
    assert not found.is_within


@pytest.mark.parametrize(
    ("outcome", "is_within"), [("NOT_LEADER_OR_FOLLOWER", True), ("NONE", False)]
)
def test_a_zombie_may_acknowledge_nothing(outcome: str, is_within: bool) -> None:
    runs = [run_with(1, outcome="NOT_LEADER_OR_FOLLOWER"), run_with(1, outcome=outcome)]
    assert of(runs, "zombie acknowledgements").is_within is is_within


def test_drills_are_told_apart() -> None:
    found = distributions([run_with(1, drill="b"), run_with(2, drill="a"), run_with(3, drill="b")])
    seen = [(each.drill, each.runs) for each in found if each.measure == "write outage"]
    assert seen == [("b", 2), ("a", 1)]


@given(st.lists(st.floats(0, 10), min_size=1).map(sorted), st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_suffices(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert sum(each <= found for each in values) * 100 >= percent * len(values)
    below = [each for each in values if each < found]
    assert len(below) * 100 < percent * len(values)
