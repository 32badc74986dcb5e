"""Compares what the quorum has committed with the disks of its voters."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.majority import deciding, durable_ends, is_held
from chaos.sim.laws.scene import Report
from raft.ready import Role


class MajorityHolds(Law):
    """A majority has everything below the quorum's high watermark on disk. The high watermark never
    goes back."""

    name = "a majority holds what is committed"
    cadence = Cadence.QUORUM

    def __init__(self) -> None:
        self._high_watermarks: dict[str, int] = {}  # by process

    def look(self, cluster: SimCluster, report: Report) -> None:
        cores = [(node, core) for node in cluster.controllers.values() if (core := node.core)]
        ends = durable_ends(core for _, core in cores)
        for node, core in cores:
            process, high_watermark = node.incarnation, core.high_watermark
            before = self._high_watermarks.get(process, -1)
            if high_watermark < before:
                report(f"{process}: the quorum's high watermark went {before} to {high_watermark}")
            self._high_watermarks[process] = high_watermark
            if core.role is not Role.LEADER:
                continue
            self.looked += high_watermark > 0
            if not any(is_held(voters, ends, high_watermark) for voters in deciding(core)):
                report(f"{process} committed {high_watermark}; {ends} are on disk")
