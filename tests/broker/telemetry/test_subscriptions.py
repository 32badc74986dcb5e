"""What the subscriptions that match a client come to together."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.telemetry.subscriptions import AT_ONCE, NOTHING, Wanted, subscription_id, wanted_of
from metadata.client_metrics import CRITERIA, Subscription, subscription_of

CLIENT = {**dict.fromkeys(CRITERIA, ""), "client_id": "a"}


def finished(work: Generator[None, None, Wanted]) -> tuple[Wanted, int]:
    """The result and the number of pauses."""
    results: list[Wanted] = []

    def driven() -> Generator[None, None, None]:
        results.append((yield from work))

    pauses = sum(1 for _ in driven())
    return results[0], pauses


def subscription(metrics: str, interval_ms: int, client_id: str = ".*") -> Subscription:
    return subscription_of(
        {
            "metrics": metrics,
            "interval.ms": str(interval_ms),
            "match": f"client_id={client_id}",
        }
    )


SUBSCRIPTIONS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(["m.a.", "m.b.", "n.", "*"]), max_size=3),
        st.sampled_from([100, 1_000, 300_000, 3_600_000]),
        st.sampled_from(["a", "b", ".*"]),
    ),
    max_size=5,
)


@given(SUBSCRIPTIONS)
def test_metrics_are_united_and_the_shortest_interval_counts(
    given: list[tuple[set[str], int, str]],
) -> None:
    wanted, _ = finished(
        wanted_of([subscription(",".join(m), ms, who) for m, ms, who in given], CLIENT)
    )
    matching = [(metrics, ms) for metrics, ms, who in given if who != "b"]
    names = {each for metrics, _ in matching for each in metrics}
    assert wanted.metrics == (("*",) if "*" in names else tuple(sorted(names)))
    assert wanted.interval_ms == min([300_000, *(ms for _, ms in matching)])


def test_no_subscription_wants_nothing() -> None:
    assert finished(wanted_of([], CLIENT)) == (NOTHING, 0)
    assert Wanted((), 300_000) == NOTHING


def test_many_subscriptions_take_several_turns() -> None:
    """Example: 33 subscriptions are tried in three turns, with two pauses between them."""
    many = [subscription("m.", 1_000)] * (2 * AT_ONCE + 1)
    assert finished(wanted_of(many, CLIENT)) == (Wanted(("m.",), 1_000), 2)


@pytest.mark.parametrize("number", range(8))
def test_the_id_depends_on_the_client_the_metrics_and_the_interval(number: int) -> None:
    """It is a signed number of 32 bits, and the same on every broker."""
    client = bytes([number * 36] * 16)
    wanted = Wanted(("a.", "b."), 1_000)
    told = subscription_id(wanted, client)
    assert told == subscription_id(Wanted(("a.", "b."), 1_000), bytes(client))
    assert -(2**31) <= told < 2**31
    others = {
        subscription_id(wanted, client[:12] + bytes([number + 1] * 4)),
        subscription_id(wanted, bytes([number + 2] * 4) + client[4:]),
        subscription_id(Wanted(("a.",), 1_000), client),
        subscription_id(Wanted(("a.", "b."), 1_001), client),
    }
    assert told not in others
    assert len(others) == 4


def test_the_lowest_id() -> None:
    base = subscription_id(NOTHING, bytes(16)) & 0xFFFFFFFF
    client = (base ^ 1 << 31).to_bytes(4) + bytes(12)
    assert subscription_id(NOTHING, client) == -(2**31)


def test_ids_have_both_signs() -> None:
    ids = [subscription_id(NOTHING, bytes([each] * 4 + [0] * 12)) for each in range(256)]
    assert min(ids) < 0 < max(ids)
    assert len(set(ids)) == 256
