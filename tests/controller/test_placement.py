"""Placement: replicas are spread over brokers and racks, and brokers lead equally often."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from controller.placement import StripedPlacer
from metadata.brokers import BrokerRegistration
from stele.errors import ErrorCode
from tests.support.controller import refusal


def broker(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(broker_id, 0, b"", rack=rack, fenced=fenced)


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9),
    fenced=st.sets(st.integers(0, 8)),
    factor=st.integers(1, 9),
    seed=st.integers(0, 100),
)
def test_rules_that_always_hold(
    racks: list[str | None], fenced: set[int], factor: int, seed: int
) -> None:
    brokers = [broker(i, rack, fenced=i in fenced) for i, rack in enumerate(racks)]
    active = {b.broker_id for b in brokers if b.active}
    placer = StripedPlacer(brokers, random.Random(seed))
    if factor > len(brokers) or not active:
        error = refusal(lambda: placer.place(factor))
        assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    for _ in range(5):
        replicas = placer.place(factor)
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in active
        # No rack gets a second replica before every rack has one, and so on.
        per_rack = Counter(racks[replica] for replica in replicas)
        sizes = Counter(racks)
        for rack, count in per_rack.items():
            for other, size in sizes.items():
                assert per_rack[other] >= min(size, count - 1), (rack, other)


@given(
    rack_count=st.integers(1, 4),
    per_rack=st.integers(1, 4),
    factor=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_equal_racks_share_equally(rack_count: int, per_rack: int, factor: int, seed: int) -> None:
    count = rack_count * per_rack
    factor = min(factor, count)
    brokers = [broker(i, f"rack{i % rack_count}") for i in range(count)]
    placer = StripedPlacer(brokers, random.Random(seed))
    placed = [placer.place(factor) for _ in range(count * 3)]
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {3}
    load = Counter(replica for replicas in placed for replica in replicas)
    assert set(load.values()) == {3 * factor}


def test_the_seed_decides_where_it_begins() -> None:
    brokers = [broker(i) for i in range(5)]
    starts = {StripedPlacer(brokers, random.Random(seed)).place(1)[0] for seed in range(50)}
    assert starts == {0, 1, 2, 3, 4}
    assert StripedPlacer(brokers, random.Random(7)).place(3) == StripedPlacer(
        list(reversed(brokers)), random.Random(7)
    ).place(3)


def test_a_rack_of_fenced_brokers_still_gets_its_share() -> None:
    brokers = [broker(1, "a", fenced=True), broker(2, "b"), broker(3, "b"), broker(4, "c")]
    for seed in range(20):
        replicas = StripedPlacer(brokers, random.Random(seed)).place(3)
        assert replicas[0] != 1
        assert 1 in replicas
