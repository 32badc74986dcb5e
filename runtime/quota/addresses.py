"""The quota of new connections, which a broker keeps by address (KIP-612)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from metadata.client_quotas import CONNECTION_CREATION_RATE, IP, EntityPart, QuotaEntity
from runtime.quota.bucket import BURST_S, TokenBucket
from runtime.quota.kept import Recent

THROTTLE_MAX_S: Final = 1.0
"""As in Kafka."""

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class AddressQuota(NamedTuple):
    """The quota that counts for an address."""

    entity: QuotaEntity
    rate: float  # connections per second


class AddressUsage(NamedTuple):
    """How much of its quota an address uses, and how it was held back so far."""

    address: str
    rate: float  # of the last 11 s, if it was not above the quota
    throttles: int
    throttled_s: float


class _Sensor:
    __slots__ = ("bucket", "throttled_s", "throttles")

    def __init__(self, bucket: TokenBucket) -> None:
        self.bucket = bucket
        self.throttles = 0
        self.throttled_s = 0.0


def find_quota(quotas: Quotas, address: str) -> AddressQuota | None:
    """The quota of the address itself, or else the default of all addresses."""
    for name in (address, None):
        entity = (EntityPart(IP, name),)
        rate = quotas.get(entity, {}).get(CONNECTION_CREATION_RATE)
        if rate is not None:
            return AddressQuota(entity, rate)
    return None


class AddressQuotas:
    """Pure: times come with the calls, and must not go back.

    Each address has a bucket of tokens, of which 11 seconds' worth may be used at once. The
    10,000 newest addresses are remembered. A forgotten one has a full bucket.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._sensors: Recent[str, _Sensor] = Recent()

    def take(self, quotas: Quotas) -> None:
        """Go by these from now on. What was used stays used."""
        self._quotas = quotas

    def find(self, address: str) -> AddressQuota | None:
        """The quota that counts for an address now; None: it has none."""
        return find_quota(self._quotas, address)

    def admit(self, address: str, now_s: float) -> float:
        """Count a new connection of an address, and return 0; or the time that it is too early, a
        second at most. Then it is not counted."""
        quota = self.find(address)
        if quota is None:
            return 0.0
        sensor = self._sensors.get(address, now_s)
        if sensor is None:
            sensor = _Sensor(TokenBucket(quota.rate, now_s))
            self._sensors.put(address, sensor, now_s)
        else:
            sensor.bucket.set_bound(quota.rate, now_s)
        early_s = min(THROTTLE_MAX_S, sensor.bucket.wait_s(now_s))
        if not early_s:
            sensor.bucket.take(1, now_s)
            return 0.0
        sensor.throttles += 1
        sensor.throttled_s += early_s
        return early_s

    def usage(self, now_s: float) -> Iterator[AddressUsage]:
        """The usage of every address that is remembered, from the one that came last. To be used up
        before the next call."""
        for address, sensor in self._sensors:
            yield _usage(address, sensor, now_s)

    def usage_of(self, address: str, now_s: float) -> AddressUsage:
        """The usage of one address."""
        sensor = self._sensors.peek(address)
        if sensor is None:
            return AddressUsage(address, 0.0, 0, 0.0)
        return _usage(address, sensor, now_s)


def _usage(address: str, sensor: _Sensor, now_s: float) -> AddressUsage:
    rate = max(0.0, sensor.bucket.bound - sensor.bucket.tokens(now_s) / BURST_S)
    return AddressUsage(address, rate, sensor.throttles, sensor.throttled_s)
