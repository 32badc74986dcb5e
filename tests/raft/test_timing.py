"""How long a replica waits: pauses grow up to a bound."""

from __future__ import annotations

import random

import pytest

from raft.timing import Timing

TIMING = Timing(retry_min_s=0.05, retry_max_s=0.3, suspicion_min_s=0.05, election_backoff_max_s=1.0)


class Ends(random.Random):
    """Draws one or the other end of every range."""

    def __init__(self, *, greatest: bool) -> None:
        super().__init__(0)
        self._greatest = greatest

    def uniform(self, a: float, b: float) -> float:
        return b if self._greatest else a


def test_a_pause_doubles_with_every_failure_up_to_its_bound() -> None:
    pauses = [TIMING.retry(failures) for failures in (1, 2, 3, 4, 100_000)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.3, 0.3])


def test_a_backoff_doubles_with_every_loss_up_to_its_bound() -> None:
    for greatest, share in ((True, 1.0), (False, 0.5)):
        rng = Ends(greatest=greatest)
        backoffs = [TIMING.election_backoff(losses, rng) for losses in (1, 2, 4, 5, 100_000)]
        assert backoffs == pytest.approx([share * longest for longest in (0.1, 0.2, 0.8, 1, 1)])
