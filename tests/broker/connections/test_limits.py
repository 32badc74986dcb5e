"""How many connections a broker takes, against a twin that lists them all."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker.connections.limits import ConnectionLimits, Refusal
from tests.support.connections import settings

LISTENERS = ("CLIENTS", "BROKERS")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "::1")


def said(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.message


def test_an_address_has_its_limit_or_one_of_its_own() -> None:
    counted = ConnectionLimits(settings(), None)
    assert counted.admit("CLIENTS", "10.0.0.2") is None
    assert "10.0.0.2" in said(counted.admit("CLIENTS", "10.0.0.2"))
    for _ in range(2):
        assert counted.admit("CLIENTS", "10.0.0.1") is None
    assert "per.ip" in said(counted.admit("CLIENTS", "10.0.0.1"))
    assert "max.connections: 3" in said(counted.admit("CLIENTS", "10.0.0.3"))
    counted.release("CLIENTS", "10.0.0.2")
    assert counted.admit("CLIENTS", "10.0.0.2") is None


def test_the_brokers_listener_goes_beyond_the_limit_of_the_broker_and_has_its_own() -> None:
    counted = ConnectionLimits(settings(listener_max={"BROKERS": 1}), "BROKERS")
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.3"):
        assert counted.admit("CLIENTS", address) is None
    before = counted.excess
    assert counted.admit("BROKERS", "10.0.0.4") is None
    assert (before, counted.excess) == (0, 1)
    assert "listener.name.brokers.max.connections" in said(counted.admit("BROKERS", "10.0.0.5"))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(LISTENERS), st.sampled_from(ADDRESSES)),
            st.integers(0, 20),
        ),
        max_size=60,
    ),
    st.integers(0, 5),
    st.integers(0, 3),
    st.booleans(),
)
def test_as_a_twin_that_keeps_the_list_of_all_connections(
    events: list[tuple[str, str] | int], most: int, per_address: int, protects: bool
) -> None:
    protected = "BROKERS" if protects else None
    counted = ConnectionLimits(
        settings(most=most, per_address=per_address, listener_max={"CLIENTS": 2}), protected
    )
    present: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, int):
            if present:
                counted.release(*present.pop(event % len(present)))
            continue
        by_listener = Counter(listener for listener, _ in present)
        by_address = Counter(address for _, address in present)
        fits = (
            by_address[event[1]] < {"10.0.0.2": 1}.get(event[1], per_address)
            and (event[0] != "CLIENTS" or by_listener["CLIENTS"] < 2)
            and (len(present) < most or event[0] == protected)
        )
        assert (counted.admit(*event) is None) is fits
        if fits:
            present.append(event)
        assert counted.excess == max(0, len(present) - most)
