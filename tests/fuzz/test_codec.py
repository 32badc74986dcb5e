"""Changed requests of every API and version do no harm to the codec. ``scripts/fuzz`` goes on for
as long as one likes."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.codec import KINDS, Pool, check, check_memory, check_turns

EXAMPLES = 300
LARGE = 2000


@pytest.mark.parametrize(("name", "version"), KINDS)
def test_changed_requests_are_decoded_or_refused(name: str, version: int) -> None:
    rng = random.Random(f"{name} {version}")
    pool = Pool(rng, name, version)
    outcomes = set()
    measured = 0
    for _ in range(EXAMPLES):
        frame = pool.changed(rng)
        outcomes.add(check(frame))
        if len(frame) >= LARGE and measured < 2:
            measured += 1
            check_memory(frame)
            check_turns(frame)
    assert "message" in outcomes or "MalformedMessageError" in outcomes
