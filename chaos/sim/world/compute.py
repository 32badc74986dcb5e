"""Computing in virtual time: ``world.compute.Compute``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.sim.world.disk import Owner, ProcessDeadError

_TAKES_S = 0.001


class SimCompute:
    """One process's helper. Each call takes a while of virtual time, after the calls before it."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._free_s = 0.0  # how long the calls under way still take together

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self._alive()
        self._free_s += _TAKES_S
        await self._owner.sleep(self._free_s)
        self._free_s -= _TAKES_S
        self._alive()
        return work(*arguments)

    def _alive(self) -> None:
        if self._owner.dead:
            raise ProcessDeadError
