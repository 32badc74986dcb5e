"""Last stable offsets: how far readers of committed records may read."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from stele.ids import PartitionId


class LastStableOffsetsOnlyRise(Law):
    """A leader's last stable offset never goes back within its epoch, and is never above its high
    watermark. (``LogsKnowTheirTransactions`` says what it has to be.)"""

    name = "last stable offsets only rise"
    cadence = Cadence.REPLICAS

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._last: dict[tuple[PartitionId, int], int] = {}  # by partition and leader epoch

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for _, replica in self._scene.leading:
            machine = replica.machine
            now, key = machine.last_stable_offset, (replica.id, machine.leader_epoch)
            before = self._last.get(key, 0)
            self.looked += before > 0
            if now < before:
                report(
                    f"the last stable offset of {replica!r} in epoch {key[1]} went back from "
                    f"{before} to {now}"
                )
            if now > machine.high_watermark:
                report(
                    f"{replica!r} in epoch {key[1]} is stable up to {now}, and committed up to "
                    f"{machine.high_watermark}"
                )
            self._last[key] = now
