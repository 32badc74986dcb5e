"""Random replication throttles in a simulated cluster."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Mapping

from chaos.sim.cluster.cluster import SimCluster
from metadata.configs import CLUSTER, ConfigResource
from stele.errors import ApiError
from stele.world import RpcError

_PATIENCE_S = 5.0
_SETTLE_TIMEOUT_S = 60.0
_LOW_RATES = (0, 500, 5_000, 50_000)
_LOOK_S = 1.0  # between two looks for throttles that come late
_AMPLE_RATE = 10_000_000
_ROLES = ("leader", "follower")


class Throttles:
    """Throttles all replicas of some topics now and then. ``counts`` tells how often."""

    def __init__(self, cluster: SimCluster, topics: Collection[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._topics = sorted(topics)
        self._rng: random.Random = cluster.simulation.rngs.of("throttles")
        # Whether a throttle may be in force. False only when all were surely lifted.
        self._is_set = False

    async def change(self) -> None:
        """Set a throttle or lift it. ``counts`` counts what was surely done."""
        if self._is_set and self._rng.random() < 0.6:
            done = await self._lift()
            self.counts["throttles lifted"] += done
        elif self._rng.random() < 0.4:
            self._is_set = True
            roles = self._rng.choice([_ROLES, ("leader",), ("follower",)])
            rates = {f"{each}.replication.throttled.rate": self._draw_rate() for each in roles}
            self.counts["throttles set"] += await self._alter(CLUSTER, rates) and (
                await self._name_all("*")
            )

    def _draw_rate(self) -> str:
        return str(self._rng.choice(_LOW_RATES))

    async def ease(self) -> None:
        """Let throttled replicas go on: without a list, without a rate, or with an ample rate.

        Each of these alone must be enough. Raises AssertionError if the change cannot be made.
        """
        if not self._is_set:
            return
        await self._until_done(self._rng.choice([0, 1, 2]))

    async def end(self) -> None:
        """Lift the part of the throttle that ``ease`` has left."""
        if self._is_set:
            await self._until_done(None)
            self._is_set = False

    async def stay_eased(self) -> None:
        """Lift what comes into force after ``ease``, until cancelled. A broker that stood still may
        forward a request whose client has given it up long ago."""
        while True:
            if self._is_in_force():
                await self._until_done(None)
            await asyncio.sleep(_LOOK_S)

    def _is_in_force(self) -> bool:
        configs = self._cluster.image.configs
        rates = [configs.of(CLUSTER).get(f"{role}.replication.throttled.rate") for role in _ROLES]
        return any(rate not in (None, str(_AMPLE_RATE)) for rate in rates) and any(
            f"{role}.replication.throttled.replicas" in configs.of(ConfigResource.topic(topic))
            for role in _ROLES
            for topic in self._topics
        )

    async def _until_done(self, way: int | None) -> None:
        end = self._cluster.simulation.now + _SETTLE_TIMEOUT_S
        while not (await self._lift() if way is None else await self._ease(way)):
            if self._cluster.simulation.now > end:
                raise AssertionError("a replication throttle cannot be lifted")
            await asyncio.sleep(0.5)

    async def _ease(self, way: int) -> bool:
        if way == 0:
            return await self._name_all(None)
        return await self._set_rates(None if way == 1 else str(_AMPLE_RATE))

    async def _lift(self) -> bool:
        if await self._name_all(None) and await self._set_rates(None):
            self._is_set = False
            return True
        return False

    async def _set_rates(self, rate: str | None) -> bool:
        names = [f"{role}.replication.throttled.rate" for role in _ROLES]
        return await self._alter(CLUSTER, dict.fromkeys(names, rate))

    async def _name_all(self, replicas: str | None) -> bool:
        lists = dict.fromkeys(
            [f"{role}.replication.throttled.replicas" for role in _ROLES], replicas
        )
        return all(
            [await self._alter(ConfigResource.topic(topic), lists) for topic in self._topics]
        )

    async def _alter(self, resource: ConfigResource, values: Mapping[str, str | None]) -> bool:
        self._cluster.simulation.note("throttles", "alter", f"{resource}: {dict(values)}")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._cluster.client.alter_configs(resource, values)
        except (ApiError, RpcError, OSError):  # refused, or of unknown outcome
            return False
        return True
