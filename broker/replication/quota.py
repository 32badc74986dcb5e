"""A limit for the bytes of throttled replicas per second (KIP-73): a token bucket, pure.

As in Kafka all bytes of throttled replicas are counted, also those of replicas in sync, which are
never held back. Kafka averages over 11 windows of a second. Here a second's bytes may pass at once
after a pause. Bytes above the rate are paid off, but for at most 10 s.
"""

from __future__ import annotations

from metadata.config_key import LONG_MAX

BURST_S = 1.0
DEBT_MAX_S = 10.0
"""Replicas in sync may exceed the rate for hours: the debt that others wait for is bounded."""

RETRY_MIN_MS = 100.0
"""The least time that a replica waits for bytes. Afterwards it gets several batches at once."""


class ReplicationQuota:
    """One quota for a broker as a leader, one for it as a follower."""

    __slots__ = ("_level_bytes", "_rate", "_settled_ms")

    def __init__(self) -> None:
        self._rate = LONG_MAX  # bytes/s; LONG_MAX: no limit
        # What may pass, as of `_settled_ms`; negative: more has passed than should have.
        self._level_bytes = 0.0
        self._settled_ms = 0.0

    @property
    def rate(self) -> int:
        """Bytes per second; LONG_MAX is no limit."""
        return self._rate

    def set_rate(self, rate: int, now_ms: float) -> None:
        """Apply a rate from now on. After a time without limit a whole second's bytes may pass."""
        self._settle(now_ms)
        was_unlimited, self._rate = self._rate == LONG_MAX, rate
        burst = rate * BURST_S
        level = burst if was_unlimited else min(self._level_bytes, burst)
        self._level_bytes = max(level, -rate * DEBT_MAX_S)

    def available_bytes(self, now_ms: float) -> int:
        """How much may pass now; 0 when the quota is used up."""
        if self._rate == LONG_MAX:
            return LONG_MAX
        self._settle(now_ms)
        return max(0, int(self._level_bytes))

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Count bytes that have passed, whether they were available or not."""
        self._settle(now_ms)
        self._level_bytes = max(self._level_bytes - size_bytes, -self._rate * DEBT_MAX_S)

    def retry_after_ms(self, now_ms: float) -> float | None:
        """When to look again for bytes; None: not before the rate changes."""
        if self._rate == 0:
            return None
        if self._rate == LONG_MAX:
            return 0.0
        self._settle(now_ms)
        return max(RETRY_MIN_MS, (1 - self._level_bytes) * 1000 / self._rate)

    def _settle(self, now_ms: float) -> None:
        elapsed_s = (now_ms - self._settled_ms) / 1000
        self._settled_ms = now_ms
        burst = self._rate * BURST_S
        self._level_bytes = min(burst, self._level_bytes + self._rate * elapsed_s)
