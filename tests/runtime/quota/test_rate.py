"""Rates and throttles, against twins that keep every event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.quota.bucket import TokenBucket
from runtime.quota.rate import Rate

# Eighths of a second and whole amounts, so that sums are exact.
PAUSES = st.integers(0, 8 * 13) | st.integers(0, 8)
EVENTS = st.lists(st.tuples(PAUSES, st.integers(0, 5_000)), max_size=40)


class Twin:
    """All events, and what follows from them."""

    def __init__(self) -> None:
        self.events: list[tuple[float, float]] = []

    def samples(self, now: float) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        for time, amount in self.events:
            if found and time < found[-1][0] + 1:
                found[-1] = (found[-1][0], found[-1][1] + amount)
            else:
                found.append((time, amount))
        return [each for each in found if each[0] > now - 11]

    def elapsed(self, now: float) -> float:
        oldest = min([begin for begin, _ in self.samples(now)], default=now)
        full = int(now - oldest)
        return now - oldest if full >= 10 else now - oldest + (10 - full)

    def observed(self, now: float) -> float:
        return sum(amount for _, amount in self.samples(now)) / self.elapsed(now)


@given(EVENTS, st.integers(1, 500), PAUSES)
def test_a_rate_and_its_throttle_agree_with_the_twin(
    events: list[tuple[int, int]], bound: int, rest: int
) -> None:
    rate, twin, now = Rate(), Twin(), 5.0
    for pause, amount in [*events, (rest, 0)]:
        now += pause / 8
        # Before the event, too: looking changes nothing.
        assert rate.observed(now) == pytest.approx(twin.observed(now))
        rate.record(amount, now)
        twin.events.append((now, amount))
        observed = twin.observed(now)
        assert rate.observed(now) == pytest.approx(observed)
        expected = (observed - bound) / bound * twin.elapsed(now)
        assert rate.throttle_s(bound, now) == pytest.approx(max(0.0, expected))


def test_a_client_that_was_silent_may_use_ten_seconds_worth() -> None:
    rate = Rate()
    rate.record(1_000, 7.0)
    assert rate.observed(7.0) == 100
    assert rate.throttle_s(100, 7.0) == 0
    rate.record(1, 7.0)
    assert rate.throttle_s(100, 7.0) == pytest.approx(0.01)


def test_samples_count_for_eleven_seconds() -> None:
    rate = Rate()
    rate.record(110, 0.0)
    assert rate.observed(10.5) == pytest.approx(110 / 10.5)
    assert rate.observed(10.875) > 0
    assert rate.observed(11.0) == 0


def test_a_sample_ends_after_a_second() -> None:
    rate = Rate()
    for time in (0.0, 0.875, 1.0):
        rate.record(100, time)
    assert rate.observed(11.0) == 10, "the third amount is of a sample of its own"


def test_what_is_taken_back_counts_for_nothing() -> None:
    rate = Rate()
    rate.record(50, 0.0)
    rate.record(500, 0.5)
    rate.record(-500, 0.5)
    assert rate.observed(0.5) == 50 / 10.5


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 16)), min_size=1, max_size=200),
)
def test_a_client_that_waits_keeps_its_rate(steps: list[tuple[int, int]]) -> None:
    """An amount is at most a second's worth here. Over any run of its events the client uses its
    rate, and the burst of 10 s and the running second once."""
    bound = 100.0
    rate, now, sent = Rate(), 0.0, 0.0
    for amount, pause in steps:
        rate.record(amount, now)
        sent += amount
        now += rate.throttle_s(bound, now) + pause / 8
        assert sent <= bound * (now + 12)


@given(st.lists(st.tuples(PAUSES, st.integers(0, 300)), max_size=60))
def test_a_client_that_keeps_to_its_rate_never_waits(wishes: list[tuple[int, int]]) -> None:
    """It uses at most 10 seconds' worth in any 11 s."""
    rate, now, bound = Rate(), 0.0, 100.0
    used: list[tuple[float, float]] = []
    for pause, amount in wishes:
        now += pause / 8
        if amount + sum(each for time, each in used if time > now - 11) <= 10 * bound:
            used.append((now, amount))
            rate.record(amount, now)
            assert rate.throttle_s(bound, now) == 0


@given(EVENTS, st.integers(1, 100), st.integers(1, 100))
def test_a_token_bucket_is_its_twin(events: list[tuple[int, int]], first: int, second: int) -> None:
    """The twin adds the tokens of each eighth of a second one by one."""
    now, tokens, bound = 3.0, 11.0 * first, first
    bucket = TokenBucket(first, now)
    for number, (pause, count) in enumerate(events):
        for _ in range(pause):
            tokens = min(11.0 * bound, tokens + bound / 8)
        now += pause / 8
        assert bucket.tokens(now) == tokens
        if number == 5:
            bound = second
            bucket.set_bound(second, now)
            tokens = min(tokens, 11.0 * second)
        bucket.take(count, now)
        tokens -= count
        assert bucket.tokens(now) == tokens
        assert bucket.throttle_s(now) == pytest.approx(max(0.0, -tokens / bound))
