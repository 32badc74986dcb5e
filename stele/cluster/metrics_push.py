"""A client's own metrics, pushed to a broker that asks for them (KIP-714).

Nothing is sent as long as no broker offers that. Metrics never disturb the client: a push that
fails is left out, and a refusal that would come again ends all pushes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ApiError, ErrorCode
from stele.wire.compression import Compression, compress
from stele.wire.kafka import ZERO_UUID
from stele.wire.kafka.messages import get_telemetry_subscriptions as getting
from stele.wire.kafka.messages import push_telemetry as pushing
from stele.wire.kafka.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from stele.wire.otlp import Metric, metrics_data
from stele.world import Clock, Rng

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 30.0
_LAST_S: Final = 1.0
"""How long the end of a client waits for its last push."""

_SHORTEST_S: Final = 0.1
_ALL: Final = "*"
_ASK_AGAIN: Final = (
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)
_NOT_NOW: Final = (
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.TELEMETRY_TOO_LARGE,
)


class Measured(NamedTuple):
    """What a client measures, by the names of KIP-714."""

    gauges: Mapping[str, float]
    totals: Mapping[str, float]
    """Counts since the client began. The differences are pushed."""


class MetricsPush:
    """The pushes of one client. ``connected`` hears of every connection. Pushes take the oldest
    that is open: those of Produce and Fetch come later, and close before the client does."""

    def __init__(self, clock: Clock, rng: Rng, *, is_enabled: bool) -> None:
        self._clock, self._rng = clock, rng
        self._is_enabled = is_enabled
        self._measure: Callable[[], Measured] | None = None
        self._open: list[KafkaConnection] = []  # and some that are closed by now
        self._has_connection = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._instance_id = ZERO_UUID
        self._subscription: GetTelemetrySubscriptionsResponse | None = None
        self._pushed: dict[str, float] = {}  # the totals of the push before
        self._pushed_ns = 0
        self.connections = 0
        """Opened so far."""

    def begin(self, measure: Callable[[], Measured]) -> None:
        """Push what this returns from now on, if a broker asks for it."""
        self._measure = measure
        self._start()

    def connected(self, connection: KafkaConnection) -> None:
        self.connections += 1
        if self._is_enabled and getting.API.key in connection.broker_versions:
            self._open = [each for each in self._open if not each.is_closed]
            self._open.append(connection)
            self._has_connection.set()
            self._start()

    def _start(self) -> None:
        if self._task is None and self._open and self._measure is not None:
            self._pushed_ns = self._now_ns()
            self._task = asyncio.get_running_loop().create_task(self._run(self._measure))

    async def close(self) -> None:
        """Push once more, if there is something to push, and then no more."""
        self._is_enabled = False
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        connection, measure = self._oldest(), self._measure
        if self._subscription is None or connection is None or measure is None:
            return
        try:
            await self._push(
                connection, self._subscription, measure(), is_last=True, timeout_s=_LAST_S
            )
        except ApiError as error:
            log.debug("the last metrics were not pushed: %s", error)

    # ------------------------------------------------------------------------- pushing

    async def _run(self, measure: Callable[[], Measured]) -> None:
        interval_s = 0.0
        while True:
            connection = await self._open_connection()
            try:
                if self._subscription is None:
                    subscription = await self._ask(connection)
                    interval_s = max(subscription.push_interval_ms / 1000, _SHORTEST_S)
                    if subscription.requested_metrics:
                        self._subscription = subscription
                        # Clients that began together push one by one.
                        await asyncio.sleep(interval_s * self._rng.uniform(0.5, 1.5))
                    else:
                        await asyncio.sleep(interval_s)
                else:
                    await self._push(connection, self._subscription, measure())
                    await asyncio.sleep(interval_s)
            except ApiError as error:
                if error.code in _ASK_AGAIN:
                    self._subscription = None
                elif error.code in _NOT_NOW or not _is_final(error):
                    await asyncio.sleep(max(interval_s, 1.0))
                else:
                    log.info("no metrics are pushed any more: %s", error)
                    self._subscription = None
                    return

    async def _open_connection(self) -> KafkaConnection:
        while (connection := self._oldest()) is None:
            self._has_connection.clear()
            await self._has_connection.wait()
        return connection

    def _oldest(self) -> KafkaConnection | None:
        return next((each for each in self._open if not each.is_closed), None)

    async def _ask(self, connection: KafkaConnection) -> GetTelemetrySubscriptionsResponse:
        answer = await connection.request(
            getting.API,
            connection.version_of(getting.API),
            getting.GetTelemetrySubscriptionsRequest(self._instance_id),
            timeout_s=_TIMEOUT_S,
        )
        _check(answer.error_code)
        self._instance_id = answer.client_instance_id
        return answer

    async def _push(
        self,
        connection: KafkaConnection,
        subscription: GetTelemetrySubscriptionsResponse,
        measured: Measured,
        *,
        is_last: bool = False,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        now_ns = self._now_ns()
        metrics = [Metric(name, value) for name, value in sorted(measured.gauges.items())]
        metrics += [
            Metric(name, value - self._pushed.get(name, 0.0), is_delta=True)
            for name, value in sorted(measured.totals.items())
        ]
        wanted = subscription.requested_metrics
        data = metrics_data(
            (each for each in metrics if _is_wanted(each.name, wanted)),
            resource={},
            since_ns=self._pushed_ns,
            now_ns=now_ns,
        )
        codec = _codec(subscription.accepted_compression_types)
        request = pushing.PushTelemetryRequest(
            self._instance_id,
            subscription.subscription_id,
            is_last,
            codec,
            compress(codec, data),
        )
        version = connection.version_of(pushing.API)
        answer = await connection.request(pushing.API, version, request, timeout_s=timeout_s)
        _check(answer.error_code)
        self._pushed, self._pushed_ns = dict(measured.totals), now_ns

    def _now_ns(self) -> int:
        return self._clock.time_ms() * 1_000_000


def _is_wanted(name: str, prefixes: list[str]) -> bool:
    return any(prefix == _ALL or name.startswith(prefix) for prefix in prefixes)


def _codec(accepted: list[int]) -> Compression:
    known = [each for each in accepted if each in Compression.__members__.values()]
    return Compression(known[0]) if known else Compression.NONE


def _is_final(error: ApiError) -> bool:
    """Whether the broker refuses the pushes of this client. A connection may also be lost."""
    return error.code not in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


def _check(code: int) -> None:
    if code:
        raise ApiError(ErrorCode(code), "the broker refuses metrics")
