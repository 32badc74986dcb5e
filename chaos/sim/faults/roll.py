"""An operator restarts one node after the other, beside whatever else happens."""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.fault import Family, Fault
from chaos.sim.faults.field import Field

_READY_TIMEOUT_S: Final = 10.0


class Roll(Fault):
    name, family, weight = "roll", Family.OPERATION, 1

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._rolling = False

    def strike(self, node: SimNode) -> bool:
        if self._rolling:
            return False
        self._rolling = True
        self.field.go_on(self._restart_all())
        return True

    async def _restart_all(self) -> None:
        field = self.field
        for node in field.nodes:
            if node.ready and node.id not in field.paused:
                await field.stop(node)
                await asyncio.sleep(field.rng.uniform(0.0, 1.0))
                field.revive(node)
                await self._wait_ready(node)
            if field.is_calm:
                break
        self._rolling = False

    async def _wait_ready(self, node: SimNode) -> None:
        end = self.field.simulation.now + _READY_TIMEOUT_S
        while not (node.ready or self.field.is_calm or self.field.simulation.now > end):
            await asyncio.sleep(0.1)
