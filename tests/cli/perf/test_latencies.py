"""Percentiles from little memory, beside a twin that keeps everything."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from cli.perf.latencies import PERCENTILES, Latencies


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=300))
def test_percentiles_agree_with_all_values_but_for_a_thousandth(values: list[float]) -> None:
    latencies = Latencies()
    for each in values:
        latencies.add(each)
    ordered = sorted(values)
    for percentile, found_ms in latencies.percentiles_ms().items():
        expected_ms = ordered[math.ceil(len(values) * percentile / 100) - 1] * 1000
        assert expected_ms * (1 - 1 / 1024) - 0.001 <= found_ms <= expected_ms
    assert latencies.max_ms == max(values) * 1000
    assert math.isclose(latencies.mean_ms, sum(values) / len(values) * 1000, abs_tol=1e-9)


def test_without_values() -> None:
    latencies = Latencies()
    assert list(latencies.percentiles_ms()) == list(PERCENTILES)
    assert set(latencies.summary().values()) == {None}


def test_memory_does_not_grow_with_the_number_of_values() -> None:
    latencies = Latencies()
    for number in range(100_000):
        latencies.add(number / 1000)
    assert latencies.summary() == {
        "avg_ms": 49999.5,
        "max_ms": 99999.0,
        "p50_ms": 49971.2,
        "p95_ms": 94961.664,
        "p99_ms": 98959.36,
        "p99.9_ms": 99876.864,
    }
