"""Clients with a quota: one that sends as fast as it can, and one that stays below it."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.laws.quotas import QuotasAreKept
from chaos.sim.work.access import AccessLoad
from chaos.sim.work.load import Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from stele.admin.client_quotas import QuotaAlteration
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import SteleError
from stele.wire.batch import BatchBuilder
from stele.wire.kafka.messages import produce

TENANTS: Final = "tenants"
_GREEDY, _POLITE = "greedy", "polite"
_VALUE: Final = bytes(300)
_SIZE_BYTES: Final = len(_VALUE)  # of a request at least
_IN_FLIGHT: Final = 10
_BURST: Final = 4
"""Requests, which are less than 2 s worth together."""
_REST_S: Final = (6.0, 12.0)
"""Between two bursts."""
_PATIENCE_S: Final = 60.0
_LAST_VERSION: Final = 12  # of Produce: it names topics


@dataclass(frozen=True, slots=True)
class TenantLoad(Part):
    """Whether there are tenants, and what each may send to each broker."""

    label: ClassVar = "tenants"

    rate: int = 0  # bytes per second; 0: there are none

    @classmethod
    def draw(cls, rng: random.Random) -> TenantLoad:
        """A quarter of the runs have them."""
        return cls(rng.choice([0, 0, 0, 0, 0, 0, 1000, 3000]))

    @property
    def is_there(self) -> bool:
        return self.rate > 0


class Tenants(Work):
    """``chaos.sim.laws.quotas`` judges how much each gets. Their topic does not exist: what they
    send counts all the same, and is written nowhere.

    In a cluster with an authorizer all of these clients are super users, and so they may act as
    brokers, which have no quotas. There are no tenants then.
    """

    name = "tenants"
    load = TenantLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._rate = 0 if site.load.part(AccessLoad).is_there else site.load.part(TenantLoad).rate
        self._law = site.law(QuotasAreKept)
        self._brokers = sorted(site.cluster.brokers)

    async def prepare(self) -> None:
        if not self._rate:
            return
        async with self.site.admin() as admin:
            await admin.alter_client_quotas(
                [
                    QuotaAlteration({"client-id": each}, {"producer_byte_rate": self._rate})
                    for each in (_GREEDY, _POLITE)
                ]
            )

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._run(_GREEDY), self._run(_POLITE)] if self._rate else []

    async def _run(self, client_id: str) -> None:
        rng = self.site.rngs.of(f"tenants: {client_id}")
        serve, rest_s = (
            (self._flood, (0.1, 1.0)) if client_id == _GREEDY else (self._burst, _REST_S)
        )
        while not self.site.is_done():
            broker = rng.choice(self._brokers)
            opened_s = asyncio.get_running_loop().time()
            connection = None
            try:
                connection = await self._open(broker, client_id)
                await serve(connection, broker, opened_s, rng)
            except (SteleError, OSError):
                self.counts["connections of tenants that were lost"] += 1
            finally:
                if connection is not None:
                    connection.close()
            await asyncio.sleep(rng.uniform(*rest_s))

    async def _open(self, broker: int, client_id: str) -> KafkaConnection:
        network = self.site.cluster.client_world.network
        async with asyncio.timeout(5.0):
            host = self.site.cluster.brokers[broker].host
            connection = await KafkaConnection.open(network, host, 9092, client_id)
        await connection.negotiate(timeout_s=5.0)
        return connection

    async def _flood(
        self, connection: KafkaConnection, broker: int, opened_s: float, rng: random.Random
    ) -> None:
        """Many requests under way, and no heed of the time that answers tell."""
        loop = asyncio.get_running_loop()
        lasts_s = rng.uniform(5.0, 40.0)
        answered_bytes = 0
        under_way: deque[asyncio.Future[produce.ProduceResponse]] = deque()
        try:
            while not self.site.is_done() and loop.time() - opened_s < lasts_s:
                while len(under_way) < _IN_FLIGHT:
                    under_way.append(self._send(connection))
                await under_way.popleft()
                answered_bytes += _SIZE_BYTES
                self.counts["requests of a greedy client"] += 1
                self._law.used(broker, self._rate, answered_bytes, loop.time() - opened_s)
                await asyncio.sleep(0.02)
        finally:
            for each in under_way:
                each.cancel()

    async def _burst(
        self, connection: KafkaConnection, broker: int, opened_s: float, rng: random.Random
    ) -> None:
        """A few requests one after the other: less than a silent client may send at once."""
        for _ in range(rng.randint(1, _BURST)):
            answer = await self._send(connection)
            self.counts["requests of a polite client"] += 1
            self._law.waits(broker, answer.throttle_time_ms)

    def _send(self, connection: KafkaConnection) -> asyncio.Future[produce.ProduceResponse]:
        """Raises ApiError."""
        builder = BatchBuilder()
        builder.append(None, _VALUE, timestamp_ms=self.site.cluster.client_world.clock.time_ms())
        data = [produce.PartitionProduceData(0, builder.build())]
        request = produce.ProduceRequest(
            acks=1,
            timeout_ms=3000,
            topic_data=[produce.TopicProduceData(name=TENANTS, partition_data=data)],
        )
        version = connection.version_of(produce.API, at_most=_LAST_VERSION)
        return connection.submit(produce.API, version, request, timeout_s=_PATIENCE_S)
