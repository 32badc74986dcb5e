"""The quotas that a broker keeps: bandwidth and the time of its event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
)
from runtime.quota.kept import Finder, Kept, Throttle
from runtime.quota.pace import Pace
from runtime.quota.precedence import Bucket, Client, Found
from runtime.quota.rate import Rate

REQUEST_THROTTLE_MAX_S: Final = 1.0
"""As in Kafka. A throttle of bandwidth has no such bound: a batch of 30 MB costs a client that may
send 1 MB/s some 28 s."""

BYTES_BURST_S: Final = 2.0
"""What a silent client may use at once of a byte rate. With this burst, and with amounts of up to a
second's worth, a client gets its rate within a tenth in any 30 s, the first ones too."""

FETCH_S: Final = 1.0
"""A fetch reads no more than is used in this time."""

BURST_S: Final = 10.0
"""What a silent client may use at once of any other quota, as in Kafka. Few new producers or a slow
request are ten seconds' worth."""

REQUEST_DEBT_MAX_S: Final = 10.0
"""A client is told to wait for ``REQUEST_THROTTLE_MAX_S``, and may use more after that. Without a
bound it would owe more and more, and be slowed down for hours after it has become modest."""


class _Sensor:
    """What the clients of a bucket have used."""

    __slots__ = ("pace", "rate", "throttled_s", "throttles")

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.rate = Rate()
        self.throttles = 0
        self.throttled_s = 0.0

    def use(self, amount: float, bound: float, now_s: float) -> None:
        self.rate.record(amount, now_s)
        self.pace.use(amount, bound, now_s)


class Usage(NamedTuple):
    """What a bucket uses now, and how its clients were held back so far."""

    key: str
    bucket: Bucket
    rate: float
    throttles: int
    throttled_s: float


class Admission(NamedTuple):
    """Whether a client may have an amount now, and how long it is to wait, before or after it."""

    is_admitted: bool
    throttle: Throttle | None


_ADMITTED: Final = Admission(True, None)


class QuotaManager:
    """Pure: times come with the calls, and must not go back.

    Amounts are bytes for the byte rates. For ``request_percentage`` they are hundredths of a second
    of the event loop, so that the rate is a percentage of its time.
    """

    def __init__(self, quotas: ClientQuotas) -> None:
        self._finder = Finder(quotas)
        self._sensors: Kept[_Sensor] = Kept()

    def take(self, quotas: ClientQuotas) -> None:
        """Go by these from now on. What was used stays used."""
        self._finder.take(quotas)

    def find(self, key: str, client: Client) -> Found | None:
        """The quota that counts for the client; None: it has none."""
        return self._finder.find(key, client)

    def record(self, key: str, client: Client, amount: float, now_s: float) -> Throttle | None:
        """Count what was used. The client is to wait so long; None: it is within its quota."""
        found = self._finder.find(key, client)
        if found is None:
            return None
        sensor = self._sensor(key, found.bucket, now_s)
        sensor.use(amount, found.bound, now_s)
        return _throttle(sensor, key, found, now_s)

    def admit(self, key: str, client: Client, amount: float, now_s: float) -> Admission:
        """As ``record``, before the client gets the amount: while it owes time it has to wait
        first. Then nothing is counted.

        It gets any amount if it owes nothing, and waits afterwards. Else it could never get a batch
        that is larger than its burst, and would wait in vain for others.
        """
        found = self._finder.find(key, client)
        if found is None:
            return _ADMITTED
        sensor = self._sensor(key, found.bucket, now_s)
        if sensor.pace.owed_s(found.bound, now_s) > 0:
            return Admission(False, _throttle(sensor, key, found, now_s))
        sensor.use(amount, found.bound, now_s)
        return Admission(True, _throttle(sensor, key, found, now_s))

    def fetch_max(self, client: Client) -> float | None:
        """The most bytes that a fetch may read, if a batch is no larger. None: there is no
        quota."""
        found = self._finder.find(CONSUMER_BYTE_RATE, client)
        return None if found is None else found.bound * FETCH_S

    def usage(self, now_s: float) -> Iterator[Usage]:
        """The usage of every known bucket, from the one that was used last. To be used up before
        the next call."""
        for key, bucket, sensor in self._sensors:
            yield _usage(key, bucket, sensor, now_s)

    def usage_of(self, key: str, bucket: Bucket, now_s: float) -> Usage:
        """The usage of one bucket."""
        return _usage(key, bucket, self._sensors.peek(key, bucket) or _sensor(key), now_s)

    def _sensor(self, key: str, bucket: Bucket, now_s: float) -> _Sensor:
        sensor = self._sensors.get(key, bucket, now_s)
        if sensor is None:
            sensor = _sensor(key)
            self._sensors.put(key, bucket, sensor, now_s)
        return sensor


def _sensor(key: str) -> _Sensor:
    if key in (CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE):
        return _Sensor(Pace(BYTES_BURST_S))
    if key == REQUEST_PERCENTAGE:
        return _Sensor(Pace(BURST_S, REQUEST_DEBT_MAX_S))
    return _Sensor(Pace(BURST_S))


def _throttle(sensor: _Sensor, key: str, found: Found, now_s: float) -> Throttle | None:
    seconds = sensor.pace.owed_s(found.bound, now_s)
    if seconds <= 0:
        return None
    if key == REQUEST_PERCENTAGE:
        seconds = min(seconds, REQUEST_THROTTLE_MAX_S)
    sensor.throttles += 1
    sensor.throttled_s += seconds
    return Throttle(seconds, key, found, sensor.rate.observed(now_s))


def _usage(key: str, bucket: Bucket, sensor: _Sensor, now_s: float) -> Usage:
    rate = sensor.rate.observed(now_s)
    return Usage(key, bucket, rate, sensor.throttles, sensor.throttled_s)
