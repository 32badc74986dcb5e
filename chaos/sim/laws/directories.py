"""Directories that are offline."""

from __future__ import annotations

import errno
import os

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report
from storage.directory import LogDirectory
from storage.errors import CutShortError, is_disk_full


class DirectoriesFailWithTheirDevice(Law):
    """A directory goes offline only when its own device has failed a write or a sync, or is gone.
    No log goes offline because its disk is full: the disk may have room again."""

    name = "directories fail with their device"
    cadence = Cadence.SELDOM

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.brokers.values():
            running = node.running
            if running is None or running.broker is None:
                continue
            for directory in running.broker.directories:
                _report_full_logs(node, directory, report)
                disk = node.machine.disk
                if disk.has_failed or disk.has_died(directory.path):
                    continue
                self.looked += 1
                if directory.offline is not None:
                    report(f"{node.incarnation}: {directory.path} is offline: {directory.offline}")


def _report_full_logs(node: SimNode, directory: LogDirectory, report: Report) -> None:
    for log in directory.logs.values():
        if log.offline is not None and is_disk_full(log.offline):
            report(f"{node.incarnation}: {log.name} is offline: {log.offline}")
    for key, error in directory.corrupt.items():
        if isinstance(error, CutShortError) and os.strerror(errno.ENOSPC) in error.reason:
            report(f"{node.incarnation}: {key} was given up: {error}")
