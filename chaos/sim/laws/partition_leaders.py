"""The leaders of partitions."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from stele.ids import PartitionId


class OneLeaderPerPartitionEpoch(Law):
    """One process leads a partition in a leader epoch. A restarted broker is another process, so it
    may not go on leading in the same epoch."""

    name = "one leader per epoch of a partition"
    cadence = Cadence.REPLICAS

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._leaders: dict[tuple[PartitionId, int], str] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in self._scene.leading:
            self.looked += 1
            epoch, process = replica.machine.leader_epoch, node.incarnation
            leader = self._leaders.get((replica.id, epoch), process)
            if leader != process:
                report(f"{leader} and {process} both lead {replica!r} in epoch {epoch}")
            self._leaders[replica.id, epoch] = process
