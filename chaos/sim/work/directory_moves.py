"""An operator who moves replicas between the log directories of their brokers (KIP-113)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from chaos.sim.work.rare import RareLoad
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from stele.admin.admin import Admin
from stele.errors import SteleError

_PAUSES_S: Final = (0.3, 2.0)


class DirectoryMoves(Work):
    """It moves replicas of the topics that writers use, in runs with two log directories. Moves are
    asked for faster than some of them end, so some are given up or turned back."""

    name = "moves between log directories"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._rng = site.rngs.of("directory moves")

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._run()] if self.site.load.part(RareLoad).has_directories else []

    async def _run(self) -> None:
        pause_s = self._rng.choice(_PAUSES_S)
        async with self.site.admin() as admin:
            while not self.site.is_calm():
                await self.site.pause(self._rng, pause_s)
                await self._move(admin)

    async def _move(self, admin: Admin) -> None:
        node = self._rng.choice(list(self.site.cluster.brokers.values()))
        topic, partition = self._rng.choice(self.site.partitions)
        path = self._rng.choice(node.config.log_dirs)
        try:
            await admin.alter_replica_log_dirs({(topic, partition, node.id): path})
        except SteleError:  # the broker is down, or the directory is offline
            self.counts["moves between directories refused"] += 1
        else:
            self.counts["moves between directories"] += 1
