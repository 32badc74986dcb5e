"""Many latencies in little memory."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)

_BITS: Final = 11
"""Significant bits that are kept: an error of at most 0.1 %."""


class Latencies:
    """A histogram whose buckets grow with the value. Its memory grows only with the number of
    different values: a few thousand at most."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()  # by microseconds, rounded down
        self.count = 0
        self.total_s = 0.0
        self.max_s = 0.0

    def add(self, latency_s: float) -> None:
        self.count += 1
        self.total_s += latency_s
        self.max_s = max(self.max_s, latency_s)
        value = int(latency_s * 1e6)
        shift = max(value.bit_length() - _BITS, 0)
        self._counts[value >> shift << shift] += 1

    @property
    def mean_ms(self) -> float:
        return self.total_s * 1000 / self.count if self.count else math.nan

    @property
    def max_ms(self) -> float:
        return self.max_s * 1000

    def percentiles_ms(self) -> dict[float, float]:
        """The nearest-rank percentiles of PERCENTILES, in milliseconds. NaN without values."""
        found = dict.fromkeys(PERCENTILES, math.nan)
        waiting = [(math.ceil(self.count * each / 100), each) for each in PERCENTILES]
        seen = 0
        for value, count in sorted(self._counts.items()):
            seen += count
            while waiting and seen >= waiting[0][0]:
                found[waiting.pop(0)[1]] = value / 1000
        return found

    def summary(self) -> dict[str, float | None]:
        """For JSON, in milliseconds. None without values."""
        percentiles = {f"p{each:g}": value for each, value in self.percentiles_ms().items()}
        figures = {"avg": self.mean_ms, "max": self.max_ms, **percentiles}
        return {
            f"{name}_ms": round(value, 3) if self.count else None for name, value in figures.items()
        }
