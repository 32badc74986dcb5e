"""A token bucket for changes that come in bursts (KIP-599).

Tokens come at the bound's rate, and 11 seconds' worth may be kept. A change may take more tokens
than there are: then nothing may be taken until the bucket is full again up to 0.
"""

from __future__ import annotations

from typing import Final

from runtime.quota.rate import SAMPLE_S, SAMPLES

BURST_S: Final = SAMPLES * SAMPLE_S

_WHOLE: Final = 1 - 1e-6
"""A token, but for the rounding of times."""


class TokenBucket:
    """A new one is full. Times must not go back."""

    __slots__ = ("_bound", "_settled_s", "_tokens")

    def __init__(self, bound: float, now_s: float) -> None:
        """``bound``: tokens per second."""
        self._bound = bound
        self._tokens = bound * BURST_S
        self._settled_s = now_s

    @property
    def bound(self) -> float:
        """Tokens per second."""
        return self._bound

    def set_bound(self, bound: float, now_s: float) -> None:
        """From now on. What was taken stays taken, and a lower bound keeps fewer tokens."""
        self._settle(now_s)
        self._bound = bound
        self._tokens = min(self._tokens, bound * BURST_S)

    def tokens(self, now_s: float) -> float:
        """Negative: so many more were taken than there were."""
        self._settle(now_s)
        return self._tokens

    def take(self, count: float, now_s: float) -> None:
        """Whether they are there or not."""
        self._settle(now_s)
        self._tokens -= count

    def wait_s(self, now_s: float) -> float:
        """How long until there is a whole token. 0: there is one."""
        tokens = self.tokens(now_s)
        return 0.0 if tokens >= _WHOLE else (1 - tokens) / self._bound

    def throttle_s(self, now_s: float) -> float:
        """How long until there is no debt."""
        self._settle(now_s)
        return max(0.0, -self._tokens / self._bound)

    def _settle(self, now_s: float) -> None:
        came = (now_s - self._settled_s) * self._bound
        self._tokens = min(self._bound * BURST_S, self._tokens + came)
        self._settled_s = now_s
