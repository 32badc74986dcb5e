"""A client that opens connections without end, and closes few of them."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.laws.crowds import ADDRESS, CrowdsStayWithinTheirLimits
from chaos.sim.work.load import Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from chaos.sim.world.network import SimNetwork
from stele.admin.client_quotas import QuotaAlteration
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import SteleError

_LIMIT: Final = 8
_OF_ALL: Final = 150
"""More than all others have at a broker, and fewer than the crowd has opened after some seconds."""
_SETTINGS: Final = (
    ("max.connections", str(_OF_ALL)),
    ("max.connections.per.ip.overrides", f"{ADDRESS}:{_LIMIT}"),
)
_KEPT: Final = 5
"""Connections that a crowd with a quota leaves open."""
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class CrowdLoad(Part):
    """Whether there is a crowd, and whether a number or a quota holds it back."""

    label: ClassVar = "crowds"

    rate: float = 0.0  # of new connections; 0: there is no quota
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> CrowdLoad:
        """A quarter of the runs have one."""
        kind = rng.choice(["", "", "", "", "", "", "limit", "quota"])
        if kind == "limit":
            return cls(settings=_SETTINGS)
        return cls(rate=1.0) if kind == "quota" else cls()

    @property
    def is_there(self) -> bool:
        return self.rate > 0 or bool(self.settings)


class Crowds(Work):
    """``chaos.sim.laws.crowds`` judges how many connections it gets, and whether anybody else is
    refused."""

    name = "crowds"
    load = CrowdLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._load = site.load.part(CrowdLoad)
        self._law = site.law(CrowdsStayWithinTheirLimits)
        self._rng = site.rngs.of("crowds")
        network = site.cluster.client_world.network
        assert isinstance(network, SimNetwork)
        self._network = network.addressed(ADDRESS)
        self._open: deque[KafkaConnection] = deque()

    async def prepare(self) -> None:
        if self._load.rate:
            async with self.site.admin() as admin:
                quota = {"connection_creation_rate": self._load.rate}
                await admin.alter_client_quotas([QuotaAlteration({"ip": ADDRESS}, quota)])
        elif self._load.is_there:
            self._law.limited(_LIMIT)

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._run()] if self._load.is_there else []

    async def _run(self) -> None:
        under_way: set[asyncio.Task[None]] = set()
        broker = self._rng.choice(sorted(self.site.cluster.brokers))
        try:
            while not self.site.is_done():
                if self._rng.random() < 0.01:
                    broker = self._rng.choice(sorted(self.site.cluster.brokers))
                task = asyncio.get_running_loop().create_task(self._come(broker))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(_PAUSE_S)
        finally:
            for each in under_way:
                each.cancel()
            for connection in self._open:
                connection.close()

    async def _come(self, broker: int) -> None:
        node = self.site.cluster.brokers[broker]
        if node.broker is None:
            return
        loop, incarnation = asyncio.get_running_loop(), node.broker.incarnation_id
        self._law.tried(incarnation, loop.time())
        connection = None
        try:
            async with asyncio.timeout(5.0):
                connection = await KafkaConnection.open(self._network, node.host, 9092, "crowd")
            await connection.negotiate(timeout_s=5.0)
        except (SteleError, OSError):
            self.counts["connections of a crowd that were closed or lost"] += 1
            if connection is not None:
                connection.close()
            return
        self.counts["connections of a crowd that were admitted"] += 1
        is_same = node.broker is not None and node.broker.incarnation_id == incarnation
        if self._load.rate and is_same:
            self._law.admitted(incarnation, self._load.rate, loop.time())
        self._open.append(connection)
        if self._load.rate and len(self._open) > _KEPT:
            self._open.popleft().close()
