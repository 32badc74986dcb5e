"""When clients may use more, against a dumb twin, and the rates that come of it in virtual time."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from metadata.client_quotas import ClientQuotas
from runtime.quota.manager import BYTES_BURST_S, FETCH_S, QuotaManager
from runtime.quota.pace import Pace
from runtime.quota.precedence import Client
from tests.support.client_quotas import entity

RATE = 64 * 1024
"""Bytes per second."""
WINDOW_S = 30.0
LARGEST_S = 8 * 11
"""Eight of Kafka's windows."""
WORTHS = st.floats(1 / 64, 1.0) | st.floats(1.0, LARGEST_S)
"""Seconds of the rate, from 1 KiB on."""
DELAYS = st.floats(0.0, 0.5)
ANN = Client("ann", "c")


def a_manager() -> QuotaManager:
    values = Map({"producer_byte_rate": float(RATE), "consumer_byte_rate": float(RATE)})
    return QuotaManager(ClientQuotas({entity(user="ann"): values}))


class Uses:
    """What a client used, and when, and the time that it lost before: it came so much later than
    the burst allows."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.amounts: list[float] = []
        self.lost_s: list[float] = []
        self._ahead_s = BYTES_BURST_S

    def add(self, now: float, amount: float) -> None:
        self._ahead_s += now - self.times[-1] if self.times else 0.0
        self.lost_s.append(max(0.0, self._ahead_s - BYTES_BURST_S))
        self._ahead_s -= self.lost_s[-1] + amount / RATE
        self.times.append(now)
        self.amounts.append(amount)

    def check_rate(self, slack_s: float) -> None:
        """In each window the client has used its rate, but for this many seconds' worth and for the
        time that it lost. Windows begin just before or just after an amount, for there they are
        fullest and emptiest."""
        sums, losses = [0.0, *accumulate(self.amounts)], [0.0, *accumulate(self.lost_s)]
        for first, begin in enumerate(self.times):
            end = begin + WINDOW_S
            if end > self.times[-1]:
                return
            last = bisect_left(self.times, end)
            most, least = sums[last] - sums[first], sums[last] - sums[first + 1]
            assert most <= RATE * (WINDOW_S + slack_s), f"from {begin:.3f} s on"
            usable_s = WINDOW_S - (losses[last + 1] - losses[first + 1])
            assert least >= RATE * (usable_s - slack_s) - 1, f"from {begin:.3f} s on"


def produced(worths: list[float], delays: list[float], until_s: float) -> Uses:
    manager, uses, now = a_manager(), Uses(), 5.0
    while now < until_s:
        number = len(uses.times)
        amount = RATE * worths[number % len(worths)]
        uses.add(now, amount)
        throttle = manager.record("producer_byte_rate", ANN, amount, now)
        now += (throttle.seconds if throttle else 0.0) + delays[number % len(delays)]
        now += 1e-3  # a request takes time
    return uses


@given(st.lists(WORTHS, min_size=1, max_size=20), st.lists(DELAYS, min_size=1, max_size=20))
def test_a_greedy_producer_gets_its_rate_whatever_its_requests_are(
    worths: list[float], delays: list[float]
) -> None:
    """A request that straddles an edge of the window counts whole on one side."""
    uses = produced(worths, delays, 5.0 + 3 * WINDOW_S + 2 * max(worths))
    uses.check_rate(BYTES_BURST_S + max(worths) + 0.01)


@pytest.mark.parametrize("worth", [1 / 64, 1 / 16, 1 / 4, 1 / 2, 0.99])
def test_a_producer_of_small_requests_gets_its_rate_within_a_tenth(worth: float) -> None:
    """From the first second on, with the burst."""
    produced([worth], [0.002], 130.0).check_rate(0.1 * WINDOW_S)


@pytest.mark.parametrize("worth", [1 / 64, 1.0, 8.0, 11.0, 20.0, 88.0])
def test_over_hours_the_rate_is_exact(worth: float) -> None:
    uses = produced([worth], [0.002], 40_000.0)
    lasted_s = uses.times[-1] - uses.times[0]
    assert sum(uses.amounts[:-1]) == pytest.approx(RATE * lasted_s, rel=0.01)


@given(
    st.lists(st.floats(1 / 64, FETCH_S), min_size=1, max_size=10),
    st.lists(st.floats(0.0, 0.1), min_size=1, max_size=10),
    st.integers(1, 4),
)
def test_greedy_consumers_share_their_rate_within_a_tenth(
    worths: list[float], delays: list[float], consumers: int
) -> None:
    """A consumer that owes time gets nothing, is told the time, and asks again after that."""
    manager, uses = a_manager(), Uses()
    nexts = [5.0] * consumers
    number = 0
    while (now := min(nexts)) < 110.0:
        number += 1
        worth = max(worths[number % len(worths)], 0.2)  # else delays alone keep it below
        admission = manager.admit("consumer_byte_rate", ANN, RATE * worth, now)
        if admission.is_admitted:
            uses.add(now, RATE * worth)
        else:
            assert admission.throttle is not None
            assert admission.throttle.seconds > 0
        wait_s = admission.throttle.seconds if admission.throttle else 0.0
        nexts[nexts.index(now)] = now + wait_s + delays[number % len(delays)] + 1e-3
    uses.check_rate(0.1 * WINDOW_S + 0.01)


@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 400)), max_size=40))
def test_who_used_no_more_than_the_rate_and_the_burst_never_waits(
    wishes: list[tuple[int, int]],
) -> None:
    pace, now, bound, burst = Pace(2.0), 3.0, 100.0, 2.0
    used: list[tuple[float, float]] = []
    for pause, amount in wishes:
        now += pause / 8
        since = [sum(a for t, a in used if t >= begin) for begin, _ in used]
        if amount <= bound * burst and all(
            total + amount <= bound * (now - begin + burst)
            for total, (begin, _) in zip(since, used, strict=True)
        ):
            used.append((now, amount))
            pace.use(amount, bound, now)
            assert pace.owed_s(bound, now) <= 1e-9


BOUNDS = st.sampled_from([25.0, 50.0, 100.0, 200.0])
EVENTS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 800), BOUNDS), max_size=40)


@given(EVENTS, st.sampled_from([math.inf, 10.0]))
def test_a_pace_is_its_twin(events: list[tuple[int, int, float]], debt_max_s: float) -> None:
    """The twin pays each eighth of a second by itself."""
    pace, now, credit_s, before = Pace(2.0, debt_max_s), 1.0, 2.0, 0.0
    for pause, amount, bound in events:
        for _ in range(pause):
            credit_s = min(2.0, credit_s + 1 / 8)
        now += pause / 8
        if credit_s < 0 and bound > before > 0:
            credit_s = credit_s * before / bound
        before = bound
        assert pace.owed_s(bound, now) == pytest.approx(max(0.0, -credit_s))
        credit_s = max(credit_s - amount / bound, -debt_max_s)
        pace.use(amount, bound, now)
        assert pace.owed_s(bound, now) == pytest.approx(max(0.0, -credit_s))


def test_a_lower_quota_leaves_the_time_and_a_higher_one_shortens_it() -> None:
    pace = Pace(2.0)
    pace.use(1_200, 100.0, 0.0)
    assert pace.owed_s(100.0, 0.0) == 10
    assert pace.owed_s(0.01, 4.0) == 6
    assert pace.owed_s(0.02, 4.0) == 3
