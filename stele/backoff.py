"""Growing pauses between attempts."""

from __future__ import annotations

from stele.world import Rng


class Backoff:
    """Pauses that double from ``first_ms`` to ``most_ms``.

    With ``rng`` each pause varies by a fifth, so that clients that failed together do not try again
    together.
    """

    __slots__ = ("_failures", "_first_ms", "_most_ms", "_rng")

    def __init__(self, first_ms: float, most_ms: float, rng: Rng | None = None) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._rng = rng
        self._failures = 0

    @property
    def failures(self) -> int:
        """The number of pauses since the last reset."""
        return self._failures

    def next_s(self) -> float:
        """The pause before the next attempt, in seconds."""
        pause_ms = min(self._first_ms * (1 << min(self._failures, 20)), self._most_ms)
        self._failures += 1
        if self._rng is not None:
            pause_ms *= self._rng.uniform(0.8, 1.2)
        return pause_ms / 1000

    def reset(self) -> None:
        """The attempt succeeded: the next pause is the first one again."""
        self._failures = 0
