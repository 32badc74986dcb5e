"""The quotas of a broker and of the controller, over many clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from metadata.client_quotas import ClientQuotas
from runtime.quota import kept
from runtime.quota.kept import Finder, Kept
from runtime.quota.manager import BURST_S, BYTES_BURST_S, REQUEST_DEBT_MAX_S, QuotaManager
from runtime.quota.mutations import MutationQuotas
from runtime.quota.pace import Pace
from runtime.quota.precedence import Bucket, Client, find
from runtime.quota.rate import Rate
from tests.support.client_quotas import Names, entity

PRODUCE, FETCH, CPU = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS = "controller_mutation_rate"
ANN, BOB = Client("ann", "c"), Client("bob", "c")


def quotas(*given: tuple[Names, dict[str, float]]) -> ClientQuotas:
    return ClientQuotas({entity(**names): Map(values) for names, values in given})


FEW = quotas(
    ({"user": "ann"}, {PRODUCE: 100.0, CPU: 50.0}),
    ({"user": None, "client-id": "c"}, {PRODUCE: 10.0, FETCH: 20.0}),
    ({"client-id": None}, {FETCH: 30.0, CPU: 5.0}),
)
CLIENTS = st.builds(Client, st.sampled_from(["ann", "bob", "cid"]), st.sampled_from(["c", "d"]))
USES = st.lists(
    st.tuples(
        st.sampled_from([PRODUCE, FETCH, CPU]), CLIENTS, st.integers(0, 500), st.integers(0, 16)
    ),
    max_size=40,
)


@given(USES)
def test_each_bucket_has_its_own_rate_and_pace(uses: list[tuple[str, Client, int, int]]) -> None:
    manager, now = QuotaManager(FEW), 1.0
    rates: dict[tuple[str, Bucket], Rate] = {}
    paces: dict[tuple[str, Bucket], Pace] = {}
    throttles: dict[tuple[str, Bucket], list[float]] = {}
    for key, client, amount, pause in uses:
        now += pause / 8
        found = find(FEW, key, client)
        assert manager.find(key, client) == found
        throttle = manager.record(key, client, amount, now)
        if found is None:
            assert throttle is None
            continue
        rate = rates.setdefault((key, found.bucket), Rate())
        rate.record(amount, now)
        new = Pace(BURST_S, REQUEST_DEBT_MAX_S) if key == CPU else Pace(BYTES_BURST_S)
        pace = paces.setdefault((key, found.bucket), new)
        pace.use(amount, found.bound, now)
        seconds = pace.owed_s(found.bound, now)
        if key == CPU:
            seconds = min(1.0, seconds)
        assert (throttle.seconds if throttle else 0.0) == seconds
        if throttle:
            assert (throttle.key, throttle.found) == (key, found)
            assert throttle.observed == rate.observed(now)
            throttles.setdefault((key, found.bucket), []).append(seconds)
    told = {(each.key, each.bucket): each for each in manager.usage(now)}
    assert set(told) == set(rates)
    for (key, bucket), usage in told.items():
        waited = throttles.get((key, bucket), [])
        assert usage == (key, bucket, rates[key, bucket].observed(now), len(waited), sum(waited))
        assert manager.usage_of(key, bucket, now) == usage


def test_who_owes_time_gets_nothing_and_nothing_is_counted() -> None:
    manager = QuotaManager(quotas(({"user": "ann"}, {FETCH: 10.0})))
    assert manager.admit(FETCH, BOB, 1e9, 0.0) == (True, None)
    assert manager.admit(FETCH, ANN, 15, 0.0) == (True, None)
    is_admitted, throttle = manager.admit(FETCH, ANN, 20, 0.0)
    assert throttle is not None
    assert is_admitted, "it owed nothing before"
    assert throttle.seconds == pytest.approx(1.5)
    is_admitted, throttle = manager.admit(FETCH, ANN, 1000, 0.5)
    assert throttle is not None
    assert not is_admitted
    assert throttle.seconds == pytest.approx(1.0)
    (usage,) = manager.usage(0.5)
    assert (usage.key, usage.bucket, usage.throttles) == (FETCH, Bucket("ann", None), 2)
    assert usage.rate == pytest.approx(35 / 10.5)
    assert usage.throttled_s == pytest.approx(2.5)
    assert manager.admit(FETCH, ANN, 5, 1.5).is_admitted


def test_any_amount_is_admitted_to_who_owes_nothing() -> None:
    manager = QuotaManager(quotas(({"user": "ann"}, {FETCH: 10.0})))
    is_admitted, throttle = manager.admit(FETCH, ANN, 500, 0.0)
    assert is_admitted
    assert throttle is not None
    assert throttle.seconds == pytest.approx(48.0)
    assert not manager.admit(FETCH, ANN, 1, 47.5).is_admitted
    assert manager.admit(FETCH, ANN, 500, 48.0).is_admitted
    assert not manager.admit(FETCH, ANN, 500, 48.0).is_admitted


def test_a_bucket_that_nobody_has_used() -> None:
    manager = QuotaManager(FEW)
    assert manager.usage_of(FETCH, Bucket("ann", "c"), 5.0) == (FETCH, ("ann", "c"), 0, 0, 0)
    assert list(manager.usage(5.0)) == []


def test_a_fetch_reads_a_seconds_worth() -> None:
    manager = QuotaManager(FEW)
    assert manager.fetch_max(BOB) == 20
    assert QuotaManager(quotas()).fetch_max(BOB) is None


def test_changed_quotas_keep_what_was_used() -> None:
    manager = QuotaManager(quotas(({"user": "ann"}, {PRODUCE: 1000.0})))
    assert manager.record(PRODUCE, ANN, 2000, 0.0) is None
    assert manager.record(PRODUCE, BOB, 2000, 0.0) is None
    manager.take(quotas(({"user": "ann"}, {PRODUCE: 50.0})))
    throttle = manager.record(PRODUCE, ANN, 50, 0.0)
    assert throttle is not None
    assert throttle.seconds == pytest.approx(1.0)
    manager.take(quotas())
    assert manager.record(PRODUCE, ANN, 1000, 0.0) is None


def test_the_throttle_of_time_is_a_second_at_most_and_that_of_bytes_unbounded() -> None:
    manager = QuotaManager(FEW)
    for key, seconds in ((CPU, 1.0), (PRODUCE, pytest.approx(998.0))):
        throttle = manager.record(key, ANN, 100_000, 0.0)
        assert throttle is not None
        assert throttle.seconds == seconds


def test_buckets_are_forgotten_after_an_hour_and_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some: Kept[str] = Kept()
    some.put("k", Bucket("ann", None), "ann", 0.0)
    some.put("k", Bucket("bob", None), "bob", 1.0)
    assert some.get("k", Bucket("ann", None), 3599.0) == "ann"
    assert some.get("k", Bucket("bob", None), 3601.0) is None
    some.put("k", Bucket("cid", None), "cid", 3601.0)
    assert [value for _, _, value in some] == ["cid", "ann"]
    monkeypatch.setattr(kept, "MAX", 2)
    assert some.get("k", Bucket("ann", None), 3602.0) == "ann"
    some.put("k", Bucket("dan", None), "dan", 3602.0)
    assert [value for _, _, value in some] == ["dan", "ann"]
    assert len(some) == 2
    assert some.peek("k", Bucket("cid", None)) is None
    assert some.peek("k", Bucket("dan", None)) == "dan"


def test_a_forgotten_bucket_begins_anew() -> None:
    manager = QuotaManager(FEW)
    manager.record(PRODUCE, ANN, 100_000, 0.0)
    assert manager.record(PRODUCE, ANN, 0, 3600.0) is None
    assert next(manager.usage(3600.0)).throttles == 0


def test_finding_is_remembered_for_a_bounded_number_of_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finder = Finder(FEW)
    first = finder.find(PRODUCE, ANN)
    assert finder.find(PRODUCE, ANN) is first
    finder.take(FEW)
    assert finder.find(PRODUCE, ANN) is first
    monkeypatch.setattr(kept, "MAX", 1)
    assert finder.find(PRODUCE, BOB) == find(FEW, PRODUCE, BOB)
    again = finder.find(PRODUCE, ANN)
    assert again == first
    assert again is not first


def test_what_was_changed_and_told_can_be_seen() -> None:
    mutations = MutationQuotas(quotas(({"user": None}, {MUTATIONS: 2.0})))
    mutations.record(BOB, 4, 0.0)
    throttle = mutations.record(ANN, 26, 0.0)
    assert throttle is not None
    mutations.told(throttle)
    mutations.told(throttle._replace(seconds=0.5))
    mutations.record(ANN, -2, 0.0)
    assert list(mutations.usage(1.0)) == [
        (Bucket("ann", None), 0.0, 24, 2.5),
        (Bucket("bob", None), 20.0, 4, 0.0),
    ]
    mutations.told(throttle._replace(found=throttle.found._replace(bucket=Bucket("eve", None))))
    assert len(list(mutations.usage(1.0))) == 2


def test_changes_may_be_made_until_the_bucket_is_in_debt() -> None:
    mutations = MutationQuotas(quotas(({"user": "ann"}, {MUTATIONS: 2.0})))
    assert mutations.throttle(BOB, 0.0) is None
    assert mutations.record(BOB, 10_000, 0.0) is None
    assert mutations.throttle(ANN, 0.0) is None
    assert mutations.record(ANN, 22, 0.0) is None
    assert mutations.throttle(ANN, 0.0) is None
    throttle = mutations.record(ANN, 10, 0.0)
    assert throttle is not None
    assert (throttle.seconds, throttle.observed, throttle.key) == (5.0, -10.0, MUTATIONS)
    assert mutations.throttle(ANN, 4.0) == throttle._replace(seconds=1.0, observed=-2.0)
    assert mutations.throttle(ANN, 5.0) is None
    mutations.record(ANN, 10, 5.0)
    mutations.take(quotas(({"user": "ann"}, {MUTATIONS: 10.0})))
    faster = mutations.throttle(ANN, 5.0)
    assert faster is not None
    assert faster.seconds == 1.0
