"""Directories that are offline."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report


class DirectoriesFailWithTheirDevice(Law):
    """A directory goes offline only when its device has failed a write or a sync."""

    name = "directories fail with their device"
    cadence = Cadence.SELDOM

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.brokers.values():
            running = node.running
            if running is None or running.broker is None:
                continue
            if node.machine.disk.has_failed:
                continue
            for directory in running.broker.directories:
                self.looked += 1
                if directory.offline is not None:
                    report(f"{node.incarnation}: {directory.path} is offline: {directory.offline}")
