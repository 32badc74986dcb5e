"""Rates and buckets, against twins that keep every event."""

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


@given(EVENTS, PAUSES)
def test_a_rate_agrees_with_the_twin(events: list[tuple[int, int]], rest: int) -> None:
    rate, twin, now = Rate(), Twin(), 5.0
    for pause, amount in [*events, (rest, 0)]:
        now += pause / 8
        # Before the event, too: looking changes nothing.
        assert rate.observed(now) == pytest.approx(twin.observed(now))
        rate.record(amount, now)
        twin.events.append((now, amount))
        assert rate.observed(now) == pytest.approx(twin.observed(now))


def test_a_silence_counts_for_ten_seconds() -> None:
    rate = Rate()
    rate.record(1_000, 7.0)
    assert rate.observed(7.0) == 100


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
