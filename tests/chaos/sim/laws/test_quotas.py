"""The law of quotas that are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from chaos.sim.laws.quotas import QuotasAreKept
from chaos.sim.laws.scene import Scene


@pytest.fixture
def broken() -> list[str]:
    return []


@pytest.fixture
def law(broken: list[str]) -> QuotasAreKept:
    return QuotasAreKept.of(cast(Scene, SimpleNamespace(report=broken.append)))


@pytest.mark.parametrize(
    ("answered_bytes", "since_s", "breaks"),
    [(3_000, 0.0, False), (3_001, 0.0, True), (13_000, 10.0, False), (13_001, 10.0, True)],
)
def test_a_client_gets_its_rate_and_a_burst(
    law: QuotasAreKept, broken: list[str], answered_bytes: int, since_s: float, breaks: bool
) -> None:
    law.used(1, 1000, answered_bytes, since_s)
    assert bool(broken) is breaks
    assert law.looked == 1


def test_a_client_below_its_quota_does_not_wait(law: QuotasAreKept, broken: list[str]) -> None:
    law.waits(1, 0)
    assert not broken
    law.waits(2, 1)
    assert broken == ["broker 2 lets a client wait 1 ms below its quota"]
    assert law.looked == 2
