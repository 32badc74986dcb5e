"""When the clients of a bucket may use more: when they have paid for what they used.

Each amount costs its worth in time, which is the amount divided by the bound. The clients pay by
the time that goes by. They may use more as soon as nothing is owed, however large the next amount
is, and owe its worth then. A silence pays ahead, for the seconds of the burst at most.

An example with a bound of 100 per second and a burst of 2 s: a silent client uses 500. It owes 3 s,
for 2 s are paid ahead. After these 3 s it uses 100, and owes 1 s.

So clients that wait as they are told use ``bound * (t + burst)`` in any time ``t``, and one amount
more at most. A client that comes late loses nothing, if it is late by no more than the burst. Kafka
averages over samples of a second (``runtime.quota.rate``). There a client uses ten seconds' worth
at once whenever its last burst is forgotten, and gets between 0.7 and 1.1 of its quota in 30 s.
"""

from __future__ import annotations

import math


class Pace:
    """Times must not go back."""

    __slots__ = ("_bound", "_burst_s", "_debt_max_s", "_paid_s")

    def __init__(self, burst_s: float, debt_max_s: float = math.inf) -> None:
        """``debt_max_s``: more than this is never owed."""
        self._burst_s = burst_s
        self._debt_max_s = debt_max_s
        self._bound = 0.0
        self._paid_s = -math.inf
        """The time at which nothing is owed. A time before now is paid ahead."""

    def use(self, amount: float, bound: float, now_s: float) -> None:
        """Owe an amount, whether anything is owed already or not."""
        self._adopt(bound, now_s)
        paid_s = max(self._paid_s, now_s - self._burst_s) + amount / bound
        self._paid_s = min(paid_s, now_s + self._debt_max_s)

    def owed_s(self, bound: float, now_s: float) -> float:
        """How long the clients must wait. 0: they may use more."""
        self._adopt(bound, now_s)
        return max(0.0, self._paid_s - now_s)

    def _adopt(self, bound: float, now_s: float) -> None:
        """A higher bound pays a debt sooner. A lower one leaves the time as it is: else a second's
        worth of a large quota would be owed for days."""
        if bound > self._bound and self._paid_s > now_s:
            self._paid_s = now_s + (self._paid_s - now_s) * self._bound / bound
        self._bound = bound
