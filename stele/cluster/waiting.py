"""How clients wait: growing pauses between attempts, and saying why."""

from __future__ import annotations

from stele.config import ClientConfig, ClientWorld, OnWait
from stele.world import Clock, Rng


class Backoff:
    """Pauses that double from ``first_ms`` to ``most_ms``, each spread by a fifth either way."""

    __slots__ = ("_failures", "_first_ms", "_most_ms", "_rng")

    def __init__(self, first_ms: float, most_ms: float, rng: Rng) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._rng = rng
        self._failures = 0

    @classmethod
    def of(cls, config: ClientConfig, world: ClientWorld) -> Backoff:
        return cls(config.retry_backoff_ms, config.retry_backoff_max_ms, world.rng)

    @property
    def failures(self) -> int:
        return self._failures

    def next_s(self) -> float:
        """The pause before the next attempt, in seconds."""
        pause_ms = min(self._first_ms * (1 << min(self._failures, 20)), self._most_ms)
        self._failures += 1
        return pause_ms * self._rng.uniform(0.8, 1.2) / 1000

    def reset(self) -> None:
        self._failures = 0


class WaitReporter:
    """Tells the user why the client waits: each reason at most once per ``every_s`` seconds."""

    def __init__(self, on_wait: OnWait, clock: Clock, *, every_s: float = 1.0) -> None:
        self._on_wait = on_wait
        self._clock = clock
        self._every_s = every_s
        self._last: dict[str, float] = {}

    def say(self, reason: str, key: str | None = None) -> None:
        """``key`` names the kind of reason where its text varies."""
        now = self._clock.monotonic()
        name = key or reason
        if now - self._last.get(name, -self._every_s) < self._every_s:
            return
        if len(self._last) > 1000:
            self._last.clear()
        self._last[name] = now
        self._on_wait(reason)
