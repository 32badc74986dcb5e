"""Changed requests do no harm, and take no more memory than they may. ``scripts/fuzz`` goes on for
as long as one likes, and times turns, too."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tests.fuzz.cost import Judge
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("make", TARGETS.values(), ids=TARGETS)
def test_changed_requests_do_no_harm(make: Any) -> None:
    rng = random.Random(20)
    target = make(rng)
    judge = Judge(target, turn_max_s=math.inf)
    outcomes = {judge.check(target.draw(rng)) for _ in range(target.examples)}
    assert outcomes
