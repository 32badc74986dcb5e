"""The quota of new connections of an address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from metadata.client_quotas import ClientQuotas
from runtime.quota import kept
from runtime.quota.addresses import AddressQuotas, AddressUsage, find_quota
from tests.support.client_quotas import entity

KEY = "connection_creation_rate"


def quotas(rates: dict[str | None, float]) -> ClientQuotas:
    return ClientQuotas({entity(ip=name): Map({KEY: rate}) for name, rate in rates.items()})


def test_the_quota_of_an_address_comes_before_the_default() -> None:
    both = quotas({"10.0.0.1": 5.0, None: 2.0})
    found = find_quota(both, "10.0.0.1"), find_quota(both, "10.0.0.2")
    assert found == ((entity(ip="10.0.0.1"), 5.0), (entity(ip=None), 2.0))
    assert find_quota(quotas({"10.0.0.1": 5.0}), "10.0.0.2") is None
    assert find_quota(ClientQuotas({entity(user="10.0.0.1"): Map({KEY: 1.0})}), "10.0.0.1") is None


@given(st.lists(st.integers(0, 24), max_size=200), st.integers(1, 4))
def test_an_address_gets_eleven_seconds_worth_and_then_its_rate(
    pauses: list[int], rate: int
) -> None:
    """The twin counts in eighths of a token and of a second."""
    addresses, now, tokens = AddressQuotas(quotas({None: float(rate)})), 0, 88 * rate
    for pause in pauses:
        now += pause
        tokens = min(88 * rate, tokens + pause * rate)
        early_s = addresses.admit("10.0.0.1", now / 8)
        if tokens >= 8:
            tokens -= 8
            assert early_s == 0
        else:
            assert early_s == pytest.approx(min(1.0, (8 - tokens) / 8 / rate))


def test_each_address_has_its_own_bucket_and_usage() -> None:
    addresses = AddressQuotas(quotas({None: 1.0}))
    for _ in range(13):
        addresses.admit("10.0.0.1", 5.0)
    addresses.admit("10.0.0.2", 5.0)
    told = {each.address: each for each in addresses.usage(5.0)}
    assert list(told) == ["10.0.0.2", "10.0.0.1"], "the last one comes first"
    assert told["10.0.0.1"] == ("10.0.0.1", 1.0, 2, 2.0)
    assert told["10.0.0.2"].rate == pytest.approx(1 / 11)
    assert addresses.usage_of("10.0.0.1", 16.0) == ("10.0.0.1", 0.0, 2, 2.0)
    assert addresses.usage_of("10.0.0.3", 16.0) == AddressUsage("10.0.0.3", 0.0, 0, 0.0)


def test_another_quota_counts_at_once_and_what_was_used_stays_used() -> None:
    addresses = AddressQuotas(quotas({None: 1.0}))
    for _ in range(11):
        assert addresses.admit("10.0.0.1", 5.0) == 0
    addresses.take(quotas({None: 10.0}))
    assert addresses.admit("10.0.0.1", 5.0) == 0.1
    assert addresses.admit("10.0.0.1", 5.1) == 0
    addresses.take(quotas({}))
    assert addresses.admit("10.0.0.1", 5.1) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX", 10)
    addresses = AddressQuotas(quotas({None: 1.0}))
    for number in range(50):
        addresses.admit(f"10.0.0.{number}", 5.0)
    assert [each.address for each in addresses.usage(5.0)][-1] == "10.0.0.40"
    assert len(list(addresses.usage(5.0))) == 10
