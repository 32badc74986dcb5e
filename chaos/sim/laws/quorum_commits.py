"""Compares what the quorum has committed with the disks of its voters."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.majority import deciding, is_held
from chaos.sim.laws.scene import Report, Scene
from raft.ready import Role


class MajorityHolds(Law):
    """A majority has everything below the quorum's high watermark on disk. The high watermark never
    goes back."""

    name = "a majority holds what is committed"
    cadence = Cadence.QUORUM

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._high_watermarks: dict[str, int] = {}  # by process

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        quorum = self._scene.quorum
        if not quorum.is_new:
            return
        for replica in quorum.replicas:
            process, high_watermark = replica.process, replica.high_watermark
            before = self._high_watermarks.get(process, -1)
            if high_watermark < before:
                report(f"{process}: the quorum's high watermark went {before} to {high_watermark}")
            self._high_watermarks[process] = high_watermark
            if replica.role is not Role.LEADER:
                continue
            self.looked += high_watermark > 0
            ends = quorum.durable_ends
            if not any(is_held(each, ends, high_watermark) for each in deciding(replica.core)):
                report(f"{process} committed {high_watermark}; {ends} are on disk")
