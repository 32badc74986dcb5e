"""The rate of the last seconds, as metrics and explanations show it.

It is Kafka's: amounts are summed up in samples of a second, of which 11 count. A sample begins with
the first amount after the one before has ended. The rate is the sum divided by the time since the
oldest sample began, or by at least 10 full seconds and the running one.
How long a client waits does not follow from it, but from ``runtime.quota.pace``.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAMPLES: Final = 11
SAMPLE_S: Final = 1.0
FULL_S: Final = (SAMPLES - 1) * SAMPLE_S
"""The time that a client's rate is averaged over at least, beside the running sample."""


class Rate:
    """Times must not go back."""

    __slots__ = ("_samples", "_total")

    def __init__(self) -> None:
        # Beginning and sum. The oldest began less than SAMPLES seconds before the last call.
        self._samples: deque[list[float]] = deque()
        self._total = 0.0  # of the sums

    def record(self, amount: float, now_s: float) -> None:
        """Count an amount."""
        self._forget(now_s)
        samples = self._samples
        if not samples or now_s - samples[-1][0] >= SAMPLE_S:
            samples.append([now_s, 0.0])
        samples[-1][1] += amount
        self._total += amount

    def observed(self, now_s: float) -> float:
        """The rate per second."""
        self._forget(now_s)
        return self._total / self._elapsed_s(now_s)

    def _elapsed_s(self, now_s: float) -> float:
        since_s = now_s - self._samples[0][0] if self._samples else 0.0
        missing_s = FULL_S - since_s // SAMPLE_S * SAMPLE_S
        return since_s + max(0.0, missing_s)

    def _forget(self, now_s: float) -> None:
        samples = self._samples
        while samples and now_s - samples[0][0] >= SAMPLES * SAMPLE_S:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # no rounding error outlives what it came from
