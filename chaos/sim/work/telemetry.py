"""Clients that push metrics: in time, too early, too much, for the last time, or never."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.laws.telemetry import Kind, PushesAreTakenInTheirTime
from chaos.sim.work.load import Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from metadata import configs
from stele.admin.descriptions import ConfigResource
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode, SteleError
from stele.wire.compression import Compression, compress
from stele.wire.kafka.messages import get_telemetry_subscriptions as getting
from stele.wire.kafka.messages import push_telemetry as pushing
from stele.wire.otlp import Metric, metrics_data

_SUBSCRIPTION: Final = ConfigResource.client_metrics("simulated")
_IN_IMAGES: Final = configs.ConfigResource.client_metrics(_SUBSCRIPTION.name)
_INTERVALS_MS: Final = (500, 1000, 3000)
_LONGEST_S: Final = max(_INTERVALS_MS) / 1000
"""A broker that does not know the subscription yet asks for nothing, at Kafka's longer interval."""
_MAX_BYTES: Final = 1000
_SETTINGS: Final = (
    ("telemetry.receiver", "prometheus"),
    ("telemetry.max.bytes", str(_MAX_BYTES)),
)
_BOMB: Final = compress(Compression.GZIP, bytes(100 * _MAX_BYTES))
"""Small as it comes, and too large when it is decompressed."""
_CLIENTS: Final = 3
_TIMEOUT_S: Final = 5.0
_SLACK: Final = 1.1
"""The clocks of two machines differ, and so do two moments of one request."""
_CHANGE_PAUSE_S: Final = (5.0, 20.0)
_KNOWN_S: Final = 30.0
"""Within this time a change reaches every broker of a cluster that is whole."""
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class TelemetryLoad(Part):
    """Whether clients push metrics."""

    label: ClassVar = "telemetry"

    clients: int = 0
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> TelemetryLoad:
        """A quarter of the runs have them."""
        return cls(_CLIENTS, _SETTINGS) if rng.random() < 0.25 else cls()

    @property
    def is_there(self) -> bool:
        return self.clients > 0


class _Pusher:
    """One client instance on one connection. It knows what its broker must answer."""

    def __init__(
        self, connection: KafkaConnection, broker: int, law: PushesAreTakenInTheirTime
    ) -> None:
        self._connection = connection
        self._broker = broker
        self._law = law
        self._loop = asyncio.get_running_loop()
        self.told = getting.GetTelemetrySubscriptionsResponse()
        self._pushed_s = 0.0  # when it sent its last push that was not early
        self._has_asked = False  # since then, so that its next push is not early
        self._count = 0

    @property
    def broker(self) -> int:
        return self._broker

    @property
    def interval_s(self) -> float:
        return self.told.push_interval_ms / 1000

    async def ask(self, *, is_free: bool = True) -> None:
        """``is_free``: the broker must answer with a subscription."""
        request = getting.GetTelemetrySubscriptionsRequest(self.told.client_instance_id)
        told = await self._connection.request(getting.API, 0, request, timeout_s=_TIMEOUT_S)
        if is_free:
            self._law.answered(self._broker, Kind.ASK, told.error_code)
        if not told.error_code:
            self.told, self._has_asked = told, True

    async def push(self) -> None:
        """The interval is over, or the client has just asked."""
        await self._push(Kind.IN_TIME, self._metrics(), Compression.NONE)

    async def push_early(self) -> None:
        """Right after a push. It is early for certain if both were answered within the interval."""
        if self._has_asked:
            await self.push()
            return
        began_s, interval_s = self._pushed_s, self.interval_s
        error = await self._send(self._metrics(), Compression.NONE)
        if (self._loop.time() - began_s) * _SLACK < interval_s:
            self._law.answered(self._broker, Kind.EARLY, error)
        if error == ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            await self.ask()

    async def push_large(self, rng: random.Random) -> None:
        """The interval is over."""
        if rng.random() < 0.5:
            await self._push(Kind.LARGE, _BOMB, Compression.GZIP)
        else:
            await self._push(Kind.LARGE, bytes(_MAX_BYTES + 1), Compression.NONE)

    async def push_last(self) -> None:
        """Push for the last time, and once more. The client is of no use after that."""
        error = await self._send(self._metrics(), Compression.NONE, terminating=True)
        self._law.answered(self._broker, Kind.IN_TIME, error)
        error = await self._send(self._metrics(), Compression.NONE)
        self._law.answered(self._broker, Kind.AFTER_LAST, error)

    def _metrics(self) -> bytes:
        self._count += 1
        metric = Metric("org.apache.kafka.simulated.total", 1.0, is_delta=True)
        return metrics_data([metric], resource={}, since_ns=self._count, now_ns=self._count + 1)

    async def _push(self, kind: Kind, metrics: bytes, compression: Compression) -> None:
        self._pushed_s, self._has_asked = self._loop.time(), False
        error = await self._send(metrics, compression)
        self._law.answered(self._broker, kind, error)
        if error == ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            await self.ask()

    async def _send(
        self, metrics: bytes, compression: Compression, *, terminating: bool = False
    ) -> int:
        request = pushing.PushTelemetryRequest(
            self.told.client_instance_id,
            self.told.subscription_id,
            terminating,
            compression,
            metrics,
        )
        answer = await self._connection.request(pushing.API, 0, request, timeout_s=_TIMEOUT_S)
        return answer.error_code


class Telemetry(Work):
    """``chaos.sim.laws.telemetry`` judges what clients are answered."""

    name = "telemetry"
    load = TelemetryLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._clients = site.load.part(TelemetryLoad).clients
        self._law = site.law(PushesAreTakenInTheirTime)
        self._brokers = sorted(site.cluster.brokers)
        self._interval_ms = _INTERVALS_MS[-1]
        self._rng = site.rngs.of("telemetry: changes")

    async def prepare(self) -> None:
        if self._clients:
            async with self.site.admin() as admin:
                await admin.alter_configs({_SUBSCRIPTION: self._wanted()})

    def _wanted(self) -> dict[str, str | None]:
        return {"metrics": "*", "interval.ms": str(self._interval_ms)}

    def start(self) -> list[Coroutine[Any, Any, None]]:
        if not self._clients:
            return []
        return [self._change(), *(self._run(number) for number in range(self._clients))]

    async def _change(self) -> None:
        while not self.site.is_calm():
            await asyncio.sleep(self._rng.uniform(*_CHANGE_PAUSE_S))
            self._interval_ms = self._rng.choice(_INTERVALS_MS)
            try:
                async with self.site.admin() as admin:
                    await admin.alter_configs({_SUBSCRIPTION: self._wanted()})
            except SteleError:
                self.counts["changes of a subscription that failed"] += 1

    async def _run(self, number: int) -> None:
        rng = self.site.rngs.of(f"telemetry: client {number}")
        while not self.site.is_done():
            broker = rng.choice(self._brokers)
            connection = None
            try:
                connection = await self._open(broker, f"pusher-{number}")
                await self._serve(_Pusher(connection, broker, self._law), rng)
            except (SteleError, OSError):
                self.counts["connections of clients that push metrics that were lost"] += 1
            finally:
                if connection is not None:
                    connection.close()
            await asyncio.sleep(rng.uniform(0.5, 3.0))

    async def _open(self, broker: int, client_id: str) -> KafkaConnection:
        network = self.site.cluster.client_world.network
        async with asyncio.timeout(_TIMEOUT_S):
            host = self.site.cluster.brokers[broker].host
            connection = await KafkaConnection.open(network, host, 9092, client_id)
        await connection.negotiate(timeout_s=_TIMEOUT_S)
        return connection

    async def _reach(self, broker: int) -> KafkaConnection:
        """Everything is mended, but a broker may still be starting."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._open(broker, "last")
            except (SteleError, OSError):
                await asyncio.sleep(_TIMEOUT_S)
        return await self._open(broker, "last")

    async def _serve(self, pusher: _Pusher, rng: random.Random) -> None:
        await pusher.ask()
        if rng.random() < 0.2:
            self.counts["clients that never pushed"] += 1
            await asyncio.sleep(rng.uniform(1.0, 5.0))
            return
        await pusher.push()
        for _ in range(rng.randint(1, 8)):
            if self.site.is_done() or pusher.interval_s > _LONGEST_S:
                return
            if rng.random() < 0.4:
                self.counts["pushes that came early"] += 1
                await pusher.push_early()
            await asyncio.sleep(pusher.interval_s * _SLACK + rng.uniform(0.0, 0.5))
            if rng.random() < 0.2:
                self.counts["pushes that were too large"] += 1
                await pusher.push_large(rng)
            else:
                self.counts["pushes in time"] += 1
                await pusher.push()
        if rng.random() < 0.5 and pusher.interval_s <= _LONGEST_S:
            await asyncio.sleep(pusher.interval_s * _SLACK)
            self.counts["last pushes"] += 1
            await pusher.push_last()

    async def finish(self) -> None:
        """At each broker, a client that asked before the last change hears of the change."""
        if not self._clients:
            return
        connections: list[KafkaConnection] = []
        try:
            await self._see_a_change(connections)
        finally:
            for connection in connections:
                connection.close()

    async def _see_a_change(self, connections: list[KafkaConnection]) -> None:
        pushers = []
        for broker in self._brokers:
            connection = await self._reach(broker)
            connections.append(connection)
            pushers.append(_Pusher(connection, broker, self._law))
            await pushers[-1].ask()
        self._interval_ms = 700
        async with self.site.admin() as admin:
            await admin.alter_configs({_SUBSCRIPTION: self._wanted()})
        await self.site.cluster.until(
            self._is_known, "every broker knows the last subscription", timeout_s=_KNOWN_S
        )
        await asyncio.sleep(_LONGEST_S * _SLACK)  # a client may ask once in an interval
        for pusher in pushers:
            # A change whose outcome is unknown may still be made, long after its client has given
            # up: it may have waited at a broker that was cut off.
            before_ms = self._known_interval_ms(pusher.broker)
            await pusher.ask(is_free=False)
            after_ms = self._known_interval_ms(pusher.broker)
            if before_ms == after_ms:
                self._law.settled(pusher.broker, pusher.told.push_interval_ms, before_ms)

    def _is_known(self) -> bool:
        return all(self._known_interval_ms(each) == self._interval_ms for each in self._brokers)

    def _known_interval_ms(self, broker_id: int) -> int:
        """What this broker's metadata says; -1 if it has none."""
        broker = self.site.cluster.brokers[broker_id].broker
        if broker is None:
            return -1
        return int(broker.image.config(_IN_IMAGES).get("interval.ms", -1))
