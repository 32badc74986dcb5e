"""How fast a move may go so that tenants hardly notice it: the rule of ``--throttle auto``. Pure.

The rate grows as long as the brokers' latency is within a multiple of that before the move, and is
halved when it is not: additive increase, multiplicative decrease, as TCP does. Until the first
time that it is too much, the rate doubles, so that a move in a quiet cluster is soon at full speed.

An example: before the move, Produce requests took 8 ms (p99). Up to 16 ms the rate grows: 4, 8, 16,
32 MiB/s. Then 40 ms are measured, and the rates are 16, 20, 24 MiB/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
LEAST_RATE: Final = MIB
"""A move never stops. It would never end, and what it holds back would grow."""

FIRST_RATE: Final = 4 * MIB
STEP_RATE: Final = 4 * MIB
MOST_RATE: Final = 1024 * MIB
TOLERATED: Final = 2.0
"""The latency that tenants may have, as a multiple of the quiet one."""

LATENCY_FLOOR_S: Final = 0.005
"""Latency up to this is never too much: below it, ratios are mostly noise."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate of a move, in bytes/s of each broker, and what it has learned."""

    quiet_s: float | None
    """The latency before the move; None: there were no requests to measure, or it was not asked."""
    rate: int = FIRST_RATE
    is_probing: bool = True
    """The latency was never too much, so that the rate doubles."""

    @property
    def tolerated_s(self) -> float | None:
        """Latency above it is too much; None: it is not known yet."""
        if self.quiet_s is None:
            return None
        return max(TOLERATED * self.quiet_s, LATENCY_FLOOR_S)

    def after(self, latency_s: float | None) -> Pace:
        """The pace after a while in which this latency was measured; None: no tenant sent anything.

        If the quiet latency is not known, the first one that is measured stands for it, at the
        first rate. It may be too high then, and tenants that notice little go unnoticed.
        """
        if latency_s is not None and self.tolerated_s is None:
            return Pace(latency_s, self.rate, self.is_probing)
        tolerated_s = self.tolerated_s
        if latency_s is not None and tolerated_s is not None and latency_s > tolerated_s:
            return Pace(self.quiet_s, max(self.rate // 2, LEAST_RATE), is_probing=False)
        grown = self.rate * 2 if self.is_probing else self.rate + STEP_RATE
        return Pace(self.quiet_s, min(grown, MOST_RATE), self.is_probing)
