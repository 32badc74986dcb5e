"""High watermarks of partitions."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from stele.ids import PartitionId


class HighWatermarksOnlyRise(Law):
    """A leader's high watermark never goes back within its epoch. This law also tells other laws
    how far partitions are committed."""

    name = "high watermarks only rise"
    cadence = Cadence.REPLICAS

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._last: dict[tuple[PartitionId, int], int] = {}  # by partition and leader epoch

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        highest = self._scene.high_watermarks
        for _, replica in self._scene.leading:
            now, key = replica.machine.high_watermark, (replica.id, replica.machine.leader_epoch)
            before = self._last.get(key, 0)
            self.looked += before > 0
            if now < before:
                report(
                    f"the high watermark of {replica!r} in epoch {key[1]} went back from "
                    f"{before} to {now}"
                )
            self._last[key] = now
            highest[replica.id] = max(highest.get(replica.id, 0), now)
