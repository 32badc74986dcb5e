"""What a client is to push: all subscriptions that match it, together."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from metadata.client_metrics import ALL_METRICS, INTERVAL_MS, Subscription

AT_ONCE: Final = 16
"""Subscriptions that are tried on a client in one turn: usual expressions take some 20 µs each."""


class Wanted(NamedTuple):
    """What a client is told to push, and how often."""

    metrics: tuple[str, ...]
    """Prefixes of names, sorted, each once; only ``*`` for all metrics."""
    interval_ms: int


NOTHING: Final = Wanted((), INTERVAL_MS)


def wanted_of(
    subscriptions: Sequence[Subscription], client: Mapping[str, str]
) -> Generator[None, None, Wanted]:
    """What a client is to push, by the values of its criteria. Each step is one turn's work."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS
    for count, subscription in enumerate(subscriptions, 1):
        if subscription.matches(client):
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
        if not count % AT_ONCE:
            yield
    names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return Wanted(names, interval_ms)


def subscription_id(wanted: Wanted, instance_id: bytes) -> int:
    """The same on every broker: a checksum of what is wanted, mixed with the client's id."""
    text = f"{','.join(wanted.metrics)} {wanted.interval_ms}"
    mixed: int = crc32c(text.encode())
    for start in range(0, len(instance_id), 4):
        mixed ^= int.from_bytes(instance_id[start : start + 4])
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed
