"""The quota of changes of topics and partitions, which the controller keeps (KIP-599)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from metadata.client_quotas import CONTROLLER_MUTATION_RATE, ClientQuotas
from runtime.quota.bucket import TokenBucket
from runtime.quota.kept import Finder, Kept, Throttle
from runtime.quota.precedence import Bucket, Client, Found


class _Sensor:
    """What the clients of a bucket have changed."""

    __slots__ = ("partitions", "throttled_s", "tokens")

    def __init__(self, tokens: TokenBucket) -> None:
        self.tokens = tokens
        self.partitions = 0
        self.throttled_s = 0.0


class MutationUsage(NamedTuple):
    """What the clients of a bucket have left, and what they have changed so far."""

    bucket: Bucket
    tokens: float
    partitions: int
    throttled_s: float


class MutationQuotas:
    """Pure: times come with the calls, and must not go back.

    Changes are counted in partitions. A request may take more than is left, once: else a topic with
    more partitions than the quota has in 11 seconds could never be made.
    """

    def __init__(self, quotas: ClientQuotas) -> None:
        self._finder = Finder(quotas)
        self._sensors: Kept[_Sensor] = Kept()

    def take(self, quotas: ClientQuotas) -> None:
        """Go by these from now on."""
        self._finder.take(quotas)

    def find(self, client: Client) -> Found | None:
        """The quota that counts for the client; None: it has none."""
        return self._finder.find(CONTROLLER_MUTATION_RATE, client)

    def throttle(self, client: Client, now_s: float) -> Throttle | None:
        """Why the client may change nothing now; None: it may."""
        found = self._finder.find(CONTROLLER_MUTATION_RATE, client)
        if found is None:
            return None
        return _throttle(self._sensor(found, now_s).tokens, found, now_s)

    def record(self, client: Client, partitions: int, now_s: float) -> Throttle | None:
        """Count a change. The client is to wait so long before the next one. A negative number
        takes back what was counted."""
        found = self._finder.find(CONTROLLER_MUTATION_RATE, client)
        if found is None:
            return None
        sensor = self._sensor(found, now_s)
        sensor.partitions += partitions
        sensor.tokens.take(partitions, now_s)
        return _throttle(sensor.tokens, found, now_s)

    def told(self, throttle: Throttle) -> None:
        """An answer tells the client to wait."""
        sensor = self._sensors.peek(CONTROLLER_MUTATION_RATE, throttle.found.bucket)
        if sensor is not None:
            sensor.throttled_s += throttle.seconds

    def usage(self, now_s: float) -> Iterator[MutationUsage]:
        """The usage of every known bucket, from the one that was used last. To be used up before
        the next call."""
        for _, bucket, sensor in self._sensors:
            tokens = sensor.tokens.tokens(now_s)
            yield MutationUsage(bucket, tokens, sensor.partitions, sensor.throttled_s)

    def _sensor(self, found: Found, now_s: float) -> _Sensor:
        sensor = self._sensors.get(CONTROLLER_MUTATION_RATE, found.bucket, now_s)
        if sensor is None:
            sensor = _Sensor(TokenBucket(found.bound, now_s))
            self._sensors.put(CONTROLLER_MUTATION_RATE, found.bucket, sensor, now_s)
        else:
            sensor.tokens.set_bound(found.bound, now_s)
        return sensor


def _throttle(bucket: TokenBucket, found: Found, now_s: float) -> Throttle | None:
    seconds = bucket.throttle_s(now_s)
    if seconds <= 0:
        return None
    return Throttle(seconds, CONTROLLER_MUTATION_RATE, found, bucket.tokens(now_s))
