"""How clients wait: how long between attempts, and saying why."""

from __future__ import annotations

from stele.backoff import Backoff
from stele.config import ClientConfig, ClientWorld, OnWait
from stele.world import Clock


def client_backoff(config: ClientConfig, world: ClientWorld) -> Backoff:
    """``retry_backoff_ms`` to ``retry_backoff_max_ms``, spread."""
    return Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, world.rng)


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
