"""How long clients wait between attempts, and how they report it."""

from __future__ import annotations

from typing import Final

from stele.backoff import Backoff
from stele.config import ClientConfig, ClientWorld, OnWait
from stele.user_functions import call_user
from stele.world import Clock


def client_backoff(config: ClientConfig, world: ClientWorld) -> Backoff:
    """Pauses from ``retry_backoff_ms`` to ``retry_backoff_max_ms``, with random variation."""
    return Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, world.rng)


class WaitReporter:
    """Tells the user why the client waits, each reason at most once per ``every_s`` seconds."""

    def __init__(self, on_wait: OnWait, clock: Clock, *, every_s: float = 1.0) -> None:
        self._on_wait = on_wait
        self._clock = clock
        self._every_s = every_s
        self._last: dict[str, float] = {}

    def say(self, reason: str, key: str | None = None) -> None:
        """Report a reason. ``key`` identifies the kind of reason if its text varies."""
        now = self._clock.monotonic()
        name = key or reason
        if now - self._last.get(name, -self._every_s) < self._every_s:
            return
        if len(self._last) > 1000:
            self._last.clear()
        self._last[name] = now
        call_user(self._on_wait, reason, what="on_wait")


PRODUCER_QUOTAS: Final = "producer_byte_rate, request_percentage or producer_ids_rate"
CONSUMER_QUOTAS: Final = "consumer_byte_rate or request_percentage"
"""The quotas that a broker may keep by letting a client wait. Its answer has the time alone."""


def above_quota(broker_id: int, wait_s: float, quotas: str) -> str:
    """Why a broker is sent nothing, for people."""
    return (
        f"broker {broker_id} reads nothing from this client for {wait_s:.1f} s, because it is above"
        f" its quota of {quotas} (stele quotas why USER --client-id ID says which)"
    )
