"""A client that sends many requests at once on several connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.work.load import Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import SteleError
from stele.wire.kafka.messages import find_coordinator

_CONNECTIONS: Final = 3
_AT_ONCE: Final = (9, 60)
"""Requests: more than a connection takes in one go."""
_REST_S: Final = (0.2, 2.0)
_TIMEOUT_S: Final = 20.0
_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class RushLoad(Part):
    """Whether there is such a client."""

    label: ClassVar = "rush"

    connections: int = 0

    @classmethod
    def draw(cls, rng: random.Random) -> RushLoad:
        """A quarter of the runs have one."""
        return cls(_CONNECTIONS if rng.random() < 0.25 else 0)

    @property
    def is_there(self) -> bool:
        return self.connections > 0


class Rush(Work):
    """``chaos.sim.laws.turns`` judges whether its requests and those of others are taken."""

    name = "rush"
    load = RushLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._connections = site.load.part(RushLoad).connections
        self._brokers = sorted(site.cluster.brokers)

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._run(number) for number in range(self._connections)]

    async def _run(self, number: int) -> None:
        rng = self.site.rngs.of(f"rush: connection {number}")
        network = self.site.cluster.client_world.network
        while not self.site.is_done():
            host = self.site.cluster.brokers[rng.choice(self._brokers)].host
            connection = None
            try:
                async with asyncio.timeout(5.0):
                    connection = await KafkaConnection.open(network, host, 9092, "rush")
                await connection.negotiate(timeout_s=5.0)
                for _ in range(rng.randint(1, 10)):
                    await self._rush(connection, rng.randint(*_AT_ONCE))
                    await asyncio.sleep(rng.uniform(*_REST_S))
            except (SteleError, OSError):
                self.counts["connections of a rush that were lost"] += 1
            finally:
                if connection is not None:
                    connection.close()
            await asyncio.sleep(rng.uniform(*_REST_S))

    async def _rush(self, connection: KafkaConnection, count: int) -> None:
        request = find_coordinator.FindCoordinatorRequest(key="rush")
        under_way = [
            connection.submit(find_coordinator.API, _VERSION, request, timeout_s=_TIMEOUT_S)
            for _ in range(count)
        ]
        try:
            for each in under_way:
                await each
                self.counts["requests of a rush"] += 1
        finally:
            for each in under_way:
                each.cancel()
