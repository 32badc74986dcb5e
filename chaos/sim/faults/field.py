"""The field of a storm: the nodes, the faults in force on each, and how these are undone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.damage import Damage
from chaos.sim.faults.images import Images
from chaos.sim.world.disk import DiskFaults
from chaos.sim.world.process import ProcessEndedError

_STOP_TIMEOUT_S = 30.0


class Field:
    """What all faults of a storm share. ``kill``, ``cut_power`` and ``revive`` return False when
    there is nothing to do."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.simulation = cluster.simulation
        self.rng: random.Random = cluster.simulation.rngs.of("storm")
        self.damage = Damage(cluster, cluster.simulation.rngs.of("damage"))
        self.images = Images(cluster, self.damage)
        self.is_calm = False  # True: no more faults may begin
        self.dark: set[int] = set()  # nodes without power
        self.paused: set[int] = set()
        self.broken: set[int] = set()  # nodes whose disk fails or is full
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def nodes(self) -> list[SimNode]:
        return list(self.cluster.nodes.values())

    def disk_faults(self, node: SimNode) -> DiskFaults:
        return node.machine.disk.faults

    # -------------------------------------------------------------------- beside further acts

    def go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work beside whatever else happens."""
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def finish(self) -> None:
        """Wait for all work begun by ``go_on``."""
        await asyncio.gather(*self._tasks)

    async def stop(self, node: SimNode) -> None:
        """Shut a node down in order. A process that does not end in time is killed."""
        process = node.process
        assert process is not None
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await node.stop()
        except (TimeoutError, ProcessEndedError):
            if not process.dead:
                self.simulation.kill(process)

    # -------------------------------------------------------------------------- down and up

    def kill(self, node: SimNode) -> bool:
        if not node.alive:
            return False
        node.kill()
        self.paused.discard(node.id)
        return True

    def cut_power(self, node: SimNode) -> bool:
        if node.id in self.dark:
            return False
        self.simulation.power_off(node.host)
        self.dark.add(node.id)
        self.paused.discard(node.id)
        return True

    def revive(self, node: SimNode) -> bool:
        """Mend what keeps a node down, and start or resume it."""
        if node.id in self.broken:
            self._mend_disk(node)
        was_paused = node.id in self.paused
        self.paused.discard(node.id)
        if was_paused and node.alive:
            node.resume()
            return True
        if node.id in self.dark:
            self.dark.discard(node.id)
            self.simulation.power_on(node.host)
        if node.alive:
            return False
        if node.failure and node.id in self.damage.metadata:
            self.damage.replace_metadata(node)
        self.disk_faults(node).no_handle = 0.0
        node.start()
        return True

    def _mend_disk(self, node: SimNode) -> None:
        """Repair the disk or free its room, and cut power: only a reboot shows which writes were
        lost."""
        faults = self.disk_faults(node)
        faults.failing_sync = faults.failing_read = faults.failing_write = False
        faults.failing_write_back = ""
        faults.quota_bytes = None
        self.broken.discard(node.id)
        if node.id not in self.dark:
            self.cut_power(node)
