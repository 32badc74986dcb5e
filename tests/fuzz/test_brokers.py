"""Changed requests do no harm to a broker. ``scripts/fuzz`` goes on for as long as one likes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.fuzz.brokers import GrpcTarget, KafkaTarget
from tests.fuzz.contents import BatchTarget, SubscriptionTarget
from tests.fuzz.live import LiveTarget
from tests.fuzz.live_grpc import LiveGrpcTarget

INPUTS = {
    KafkaTarget: 60,
    GrpcTarget: 60,
    BatchTarget: 3000,
    SubscriptionTarget: 3000,
    LiveTarget: 10,
    LiveGrpcTarget: 6,
}


@pytest.mark.parametrize("make", INPUTS, ids=lambda each: each.name)
def test_changed_requests_do_no_harm(make: Any) -> None:
    rng = random.Random(20)
    target = make(rng)
    outcomes = {target.check(target.draw(rng)) for _ in range(INPUTS[make])}
    assert outcomes
