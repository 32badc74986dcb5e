"""A client that asks for the lag of a share group again and again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from chaos.sim.cluster.connections import Connections
from chaos.sim.laws.share_lags import LagsCountWhatIsLeft
from chaos.sim.work.group_client import GroupClient
from chaos.sim.work.share_crew import Shared
from chaos.sim.work.site import Site
from stele.errors import ApiError


@dataclass(slots=True)
class LagReader:
    """``run`` until all is done."""

    shared: Shared
    coordinator: GroupClient
    connections: Connections
    law: LagsCountWhatIsLeft
    counts: Counter[str]
    rng: random.Random
    is_done: Callable[[], bool]

    @classmethod
    def of(cls, site: Site, shared: Shared, counts: Counter[str]) -> Self:
        name = f"lag of {shared.group_id}"
        rng = site.rngs.of(f"shares: {name}")
        connections = Connections.of(site.cluster, name)
        coordinator = GroupClient(shared.group_id, connections, rng)
        law = site.law(LagsCountWhatIsLeft)
        return cls(shared, coordinator, connections, law, counts, rng, site.is_done)

    async def run(self, pause_s: float) -> None:
        while not self.is_done():
            try:
                await self._ask()
            except (ApiError, OSError):
                self.counts["lags of share groups not known"] += 1
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
        self.connections.close()

    async def _ask(self) -> None:
        group_id, topic, partitions, _ = self.shared
        questions = [self.law.asks(group_id, (topic, number)) for number in range(partitions)]
        told = await self.coordinator.share_offsets(topic, partitions)
        for each in questions:
            if each.place in told:
                self.counts["lags of share groups"] += 1
                self.law.answered(each, *told[each.place])
