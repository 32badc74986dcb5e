"""The latency of tenants, as brokers' ``/metrics`` count it: how long Produce requests took since
the last look."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cli.output import CommandError

Buckets = Mapping[float, float]
"""By upper bound in seconds: how many requests took so long at most, since the broker began."""

_BUCKET: Final = re.compile(
    r'^stele_request_seconds_bucket\{api="PRODUCE",le="([^"]+)"\} (\S+)$', re.MULTILINE
)
_TIMEOUT_S: Final = 5.0
SAMPLES_MIN: Final = 10
"""A percentile of fewer requests says nothing."""


def buckets_of(metrics: str) -> dict[float, float]:
    """The buckets of Produce in the text of a broker's ``/metrics``; empty before the first
    request."""
    return {float(bound): float(count) for bound, count in _BUCKET.findall(metrics)}


def percentile_s(before: Buckets, after: Buckets, share: float = 0.99) -> float | None:
    """The time within which this share of the requests between two looks was answered.

    Within a bucket it is interpolated, as Prometheus does. None: there were too few requests. A
    broker that began anew in between counts from its beginning.
    """
    if any(after.get(bound, 0.0) < count for bound, count in before.items()):
        before = {}
    counted = [(bound, after[bound] - before.get(bound, 0.0)) for bound in sorted(after)]
    total = counted[-1][1] if counted else 0.0
    if total < SAMPLES_MIN:
        return None
    rank = share * total
    lower = below = 0.0
    for bound, count in counted:
        if count >= rank:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower


def read_metrics(server: str) -> str:
    """The text of ``/metrics``. Raises CommandError."""
    import urllib.request

    url = f"http://{server}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            text: str = answer.read().decode(errors="replace")
    except (OSError, ValueError) as error:
        raise CommandError(
            f"cannot read {url}: {error}. --metrics-servers names the metrics.port of brokers"
        ) from None
    return text


class BrokerLatency:
    """Looks at some brokers again and again."""

    def __init__(self, servers: Sequence[str], read: Callable[[str], str] = read_metrics) -> None:
        self._servers = servers
        self._read = read
        self._before: dict[str, Buckets] = {}

    def look(self) -> float | None:
        """The worst broker's latency in seconds since the last look; None at the first, or if no
        broker has had enough requests. Raises CommandError."""
        found: list[float] = []
        for server in self._servers:
            after = buckets_of(self._read(server))
            before = self._before.get(server)
            self._before[server] = after
            if before is not None and (took_s := percentile_s(before, after)) is not None:
                found.append(took_s)
        return max(found, default=None)
