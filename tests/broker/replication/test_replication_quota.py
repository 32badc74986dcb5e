"""The quota of throttled replicas, compared with one that steps through every millisecond."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.replication.quota import BURST_S, DEBT_MAX_S, RETRY_MIN_MS, ReplicationQuota
from metadata.config_key import LONG_MAX

RATES = st.sampled_from([0, 1, 1_000, 64_000, 10_000_000, LONG_MAX])


class Twin:
    """Every millisecond brings a thousandth of the rate. Its level is in thousandths of a byte."""

    def __init__(self) -> None:
        self.rate = LONG_MAX
        self.level = 0

    def set_rate(self, rate: int) -> None:
        if rate == self.rate:
            return
        if self.rate == LONG_MAX:
            self.level = rate * 1000
        self.rate = rate
        self._bound()

    def millisecond(self) -> None:
        self.level += self.rate
        self._bound()

    def record(self, size: int) -> None:
        self.level -= size * 1000
        self._bound()

    def _bound(self) -> None:
        most, least = int(self.rate * 1000 * BURST_S), int(-self.rate * 1000 * DEBT_MAX_S)
        self.level = max(least, min(most, self.level))

    @property
    def available(self) -> int:
        return LONG_MAX if self.rate == LONG_MAX else max(0, self.level // 1000)


class Quota(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 5_000
        self.quota, self.twin = ReplicationQuota(), Twin()

    @rule(rate=RATES)
    def set_rate(self, rate: int) -> None:
        self.quota.set_rate(rate, self.now_ms)
        self.twin.set_rate(rate)

    @rule(elapsed_ms=st.integers(0, 600) | st.just(1_500))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        for _ in range(elapsed_ms):
            self.twin.millisecond()

    @rule(size=st.integers(0, 20_000_000))
    def record(self, size: int) -> None:
        self.quota.record(size, self.now_ms)
        self.twin.record(size)

    @rule()
    def pay_off(self) -> None:
        """Wait for the longest time that anything is remembered."""
        self.now_ms += 11_000
        for _ in range(11_000):
            self.twin.millisecond()

    @invariant()
    def both_have_the_same_left(self) -> None:
        assert abs(self.quota.available_bytes(self.now_ms) - self.twin.available) <= 1

    @invariant()
    def there_is_some_when_it_says_so(self) -> None:
        after_ms = self.quota.retry_after_ms(self.now_ms)
        if after_ms is None:
            assert self.twin.rate == 0
            return
        assert after_ms == 0 or after_ms >= RETRY_MIN_MS
        probe = ReplicationQuota()
        for name in ReplicationQuota.__slots__:
            setattr(probe, name, getattr(self.quota, name))
        assert probe.available_bytes(self.now_ms + after_ms + 1) > 0


TestQuota = Quota.TestCase
TestQuota.settings = settings(max_examples=30, stateful_step_count=20)


@given(
    rate=st.sampled_from([1_000, 50_000, 3_000_000]),
    takes=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 100_000)), max_size=60),
)
def test_no_span_of_time_gets_more_than_its_seconds_and_one_burst(
    rate: int, takes: list[tuple[int, int]]
) -> None:
    """For callers that ask first and take no more than there is."""
    quota, now_ms = ReplicationQuota(), 1_000
    quota.set_rate(rate, now_ms)
    taken: list[tuple[int, int]] = []
    for elapsed_ms, wanted in takes:
        now_ms += elapsed_ms
        size = min(wanted, quota.available_bytes(now_ms))
        quota.record(size, now_ms)
        taken.append((now_ms, size))
    for first, (began_ms, _) in enumerate(taken):
        total = 0
        for ended_ms, size in taken[first:]:
            total += size
            assert total <= rate * (BURST_S + (ended_ms - began_ms) / 1000) + 1


def test_a_rate_of_nothing_lets_nothing_pass_until_it_changes() -> None:
    quota = ReplicationQuota()
    quota.set_rate(0, 0)
    assert quota.available_bytes(1e9) == 0
    assert quota.retry_after_ms(1e9) is None
    quota.set_rate(1_000, 1e9)
    assert quota.retry_after_ms(1e9) == RETRY_MIN_MS
