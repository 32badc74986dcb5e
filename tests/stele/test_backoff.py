"""Pauses between attempts: how they grow, and how they are spread."""

from __future__ import annotations

import random

import pytest

from stele.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(50, 250)
    assert [backoff.next_s() for _ in range(5)] == [0.05, 0.1, 0.2, 0.25, 0.25]
    assert backoff.failures == 5


def test_a_success_begins_anew() -> None:
    backoff = Backoff(50, 250)
    backoff.next_s()
    backoff.next_s()
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next_s() == 0.05


def test_clients_that_failed_together_do_not_try_again_together() -> None:
    pauses = [Backoff(100, 100, random.Random(seed)).next_s() for seed in range(100)]
    assert min(pauses) == pytest.approx(0.08, abs=0.005)
    assert max(pauses) == pytest.approx(0.12, abs=0.005)


def test_many_failures_overflow_nothing() -> None:
    backoff = Backoff(50, 250)
    for _ in range(2000):
        assert backoff.next_s() <= 0.25
