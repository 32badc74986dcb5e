"""Which connections are admitted, held and refused, against a twin that keeps every event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from broker.connections import admission as module
from broker.connections.admission import ConnectionAdmission, Held
from broker.connections.limits import Reason, Refusal
from metadata.client_quotas import ClientQuotas
from metadata.config_key import INT_MAX
from runtime.quota.addresses import AddressQuotas
from tests.support.client_quotas import entity
from tests.support.connections import settings

CLIENTS, BROKERS = "CLIENTS", "BROKERS"
BURST = 11


def address_quotas(rates: Mapping[str | None, float]) -> AddressQuotas:
    return AddressQuotas(
        ClientQuotas(
            {
                entity(ip=name): Map({"connection_creation_rate": rate})
                for name, rate in rates.items()
            }
        )
    )


def admission(
    rate: int = INT_MAX,
    listener_rates: Mapping[str, int] | None = None,
    quotas: Mapping[str | None, float] | None = None,
    *,
    most: int = INT_MAX,
) -> ConnectionAdmission[int]:
    limits = settings(most=most, per_address=INT_MAX, rate=rate, listener_rates=listener_rates)
    return ConnectionAdmission(limits, BROKERS, address_quotas(quotas or {}), now_s=0.0)


@dataclass
class Twin:
    """Eighths of a second. A bucket is what was taken since it was last full."""

    rates: Mapping[str, int]  # by listener, "" is the broker's
    admitted: dict[str, Counter[int]] = field(default_factory=dict)  # how many when, by bucket
    queues: dict[str, list[int]] = field(default_factory=dict)

    def buckets(self, listener: str) -> list[str]:
        names = [listener] if listener == BROKERS else ["", listener]
        return [name for name in names if name in self.rates]

    def tokens(self, name: str, now: int) -> float:
        """By going through all times, one eighth of a second after the other."""
        rate, taken = self.rates[name], self.admitted.get(name, Counter())
        full = left = BURST * rate * 8  # in eighths of a token
        for time in range(now + 1):
            left = min(full, left + rate) if time else left
            left -= 8 * taken[time]
        return left / 8

    def take(self, listener: str, now: int) -> bool:
        if any(self.tokens(name, now) < 1 for name in self.buckets(listener)):
            return False
        for name in self.buckets(listener):
            self.admitted.setdefault(name, Counter())[now] += 1
        return True


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([CLIENTS, CLIENTS, BROKERS]), st.integers(1, 20)),
    max_size=8,
)


@given(ARRIVALS, st.integers(1, 3), st.none() | st.integers(1, 2), st.none() | st.integers(1, 2))
def test_rates_agree_with_the_twin(
    arrivals: list[tuple[int, str, int]], rate: int, clients: int | None, brokers: int | None
) -> None:
    own = {
        name: each for name, each in ((CLIENTS, clients), (BROKERS, brokers)) if each is not None
    }
    counted, twin = admission(rate, own), Twin({"": rate, **own})
    now = number = 0
    for pause, listener, count in arrivals:
        now += 8 * pause
        let_in = list(counted.due(now / 8))
        expected = []
        # Only one listener goes by the broker's rate, so that the order between them is free.
        for each in (CLIENTS, BROKERS):
            waiting = twin.queues.get(each, [])
            while waiting and twin.take(each, now):
                expected.append(waiting.pop(0))
        assert sorted(let_in) == sorted(expected)
        for _ in range(count):
            verdict = counted.arrive(number, listener, "10.0.0.1", now / 8)
            waiting = twin.queues.setdefault(listener, [])
            if not waiting and twin.take(listener, now):
                assert verdict is None
            else:
                assert verdict == Held(None)
                waiting.append(number)
            number += 1
        assert counted.held == sum(map(len, twin.queues.values()))


def test_the_next_turn_is_when_the_next_token_comes() -> None:
    counted = admission(rate=2)
    assert counted.next_due_s(0.0) is None
    for number in range(24):
        counted.arrive(number, CLIENTS, "10.0.0.1", 0.0)
    assert counted.held == 2
    assert counted.next_due_s(0.0) == 0.5
    assert list(counted.due(0.25)) == []
    assert list(counted.due(0.5)) == [22]
    assert list(counted.due(1.0)) == [23]
    assert counted.next_due_s(1.0) is None


def test_brokers_go_by_the_rate_of_their_listener_only() -> None:
    counted = admission(rate=1)
    for number in range(50):
        counted.arrive(number, CLIENTS, "10.0.0.1", 0.0)
    assert counted.held == 50 - BURST
    assert [counted.arrive(n, BROKERS, "10.0.0.9", 0.0) for n in range(50, 99)] == [None] * 49


def test_listeners_share_the_rate_of_the_broker_by_turns() -> None:
    limits = settings(per_address=INT_MAX, most=INT_MAX, rate=1)
    counted = ConnectionAdmission[int](limits, None, address_quotas({}), now_s=0.0)
    for number in range(BURST + 20):
        counted.arrive(number, CLIENTS, "10.0.0.1", 0.0)
    assert isinstance(counted.arrive(100, "OTHERS", "10.0.0.2", 0.0), Held)
    assert list(counted.due(1.0)) == [BURST]
    assert list(counted.due(2.0)) == [100]


def test_a_rate_that_is_lifted_admits_all_that_wait() -> None:
    counted = admission(rate=1)
    for number in range(40):
        counted.arrive(number, CLIENTS, "10.0.0.1", 0.0)
    counted.take(settings(per_address=INT_MAX, most=INT_MAX), 0.0)
    assert counted.next_due_s(0.0) == 0.001
    assert list(counted.due(0.0)) == list(range(BURST, 40))
    assert counted.held == 0


def test_a_changed_rate_gives_back_nothing_that_was_used() -> None:
    """Neither that of the broker nor that of a listener."""
    for counted, changed in (
        (admission(rate=1), settings(per_address=INT_MAX, most=INT_MAX, rate=2)),
        (
            admission(listener_rates={CLIENTS: 1}),
            settings(per_address=INT_MAX, most=INT_MAX, listener_rates={CLIENTS: 2}),
        ),
    ):
        for number in range(BURST):
            assert counted.arrive(number, CLIENTS, "10.0.0.1", 0.0) is None
        counted.take(changed, 0.0)
        assert isinstance(counted.arrive(BURST, CLIENTS, "10.0.0.1", 0.0), Held)
        assert counted.next_due_s(0.0) == 0.5


def test_a_rate_of_which_the_listener_has_no_part_is_no_rate() -> None:
    counted = admission(listener_rates={BROKERS: 1})
    assert [counted.arrive(n, CLIENTS, "10.0.0.1", 0.0) for n in range(50)] == [None] * 50
    held = [counted.arrive(n, BROKERS, "10.0.0.1", 0.0) for n in range(50, 50 + BURST + 1)]
    assert held == [None] * BURST + [Held(None)]
    assert counted.next_due_s(0.0) == 1.0


def test_the_last_one_that_leaves_the_queue_holds_nobody_up() -> None:
    counted = admission(rate=1)
    for number in range(BURST + 1):
        counted.arrive(number, CLIENTS, "10.0.0.1", 0.0)
    counted.left(BURST, CLIENTS, "10.0.0.1")
    assert counted.next_due_s(0.0) is None
    assert list(counted.due(1.0)) == []
    assert counted.arrive(BURST + 1, CLIENTS, "10.0.0.1", 1.0) is None


def test_nobody_passes_those_that_wait() -> None:
    """A token may have come since the last turn."""
    counted = admission(rate=1)
    for number in range(BURST + 1):
        counted.arrive(number, CLIENTS, "10.0.0.1", 0.0)
    assert counted.arrive(BURST + 1, CLIENTS, "10.0.0.1", 1.0) == Held(None)
    assert list(counted.due(1.0)) == [BURST]


def test_one_that_leaves_the_queue_is_passed_over_and_counted_no_more() -> None:
    counted = admission(rate=1)
    for number in range(BURST + 2):
        counted.arrive(number, CLIENTS, "10.0.0.1", 0.0)
    counted.left(BURST, CLIENTS, "10.0.0.1")
    assert dict(counted.limits.by_listener) == {CLIENTS: BURST + 1}
    assert list(counted.due(1.0)) == [BURST + 1]


def test_an_address_above_its_quota_is_told_when_to_come_again() -> None:
    counted = admission(quotas={"10.0.0.1": 4.0})
    verdicts = [counted.arrive(n, CLIENTS, "10.0.0.1", 5.0) for n in range(4 * BURST + 1)]
    assert verdicts[:-1] == [None] * (4 * BURST)
    refusal = verdicts[-1]
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.after_s) == (Reason.ADDRESS_RATE, 0.25)
    assert counted.arrive(100, CLIENTS, "10.0.0.2", 5.0) is None, "another one has no quota"
    assert dict(counted.limits.by_listener) == {CLIENTS: 4 * BURST + 1}
    assert counted.arrive(101, CLIENTS, "10.0.0.1", 5.25) is None


def test_no_more_than_a_thousand_are_closed_late() -> None:
    counted = admission(quotas={None: 1.0})
    verdicts = [counted.arrive(n, CLIENTS, "10.0.0.1", 5.0) for n in range(2000)]
    late = [each for each in verdicts if isinstance(each, Refusal) and each.after_s > 0]
    assert len(late) == module.DELAYED_MAX
    counted.closed_late()
    refusal = counted.arrive(2000, CLIENTS, "10.0.0.1", 5.0)
    assert isinstance(refusal, Refusal)
    assert refusal.after_s == 1.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.sampled_from(["10.0.0.1", "10.0.0.2", "greedy"]),
            st.sampled_from([CLIENTS, BROKERS]),
        ),
        max_size=120,
    ),
    st.integers(1, 3),
)
def test_what_an_address_tries_above_its_quota_changes_nothing_for_others(
    arrivals: list[tuple[int, str, str]], rate: int
) -> None:
    with_it = admission(rate, {CLIENTS: 2}, {"greedy": 1.0}, most=60)
    without = admission(rate, {CLIENTS: 2}, {"greedy": 1.0}, most=60)
    now = 0
    for number, (pause, address, listener) in enumerate(arrivals):
        now += pause
        verdict = with_it.arrive(number, listener, address, now / 8)
        if isinstance(verdict, Refusal) and verdict.reason is Reason.ADDRESS_RATE:
            continue
        assert verdict == without.arrive(number, listener, address, now / 8)
        assert list(with_it.due(now / 8)) == list(without.due(now / 8))
