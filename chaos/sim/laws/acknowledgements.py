"""What clients were told is written."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.replica_logs import (
    is_durable,
    was_destroyed,
)
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report


class Acknowledged(Law):
    """What is acknowledged is on as many disks as promised. Asked at each acknowledgement."""

    name = "acknowledged means on disk"
    cadence = Cadence.TOLD

    def check_record(
        self, cluster: SimCluster, partition: str, value: bytes, needed: int, report: Report
    ) -> None:
        """``value`` stands uncompressed in one record only."""
        self.looked += 1
        holders = []
        for node in cluster.brokers.values():
            if is_durable(node, partition, value):
                holders.append(node.id)
                if len(holders) == needed:
                    return
        # The word of it may still have been on its way when a disk was damaged.
        holders += [
            node.id
            for node in cluster.brokers.values()
            if node.id not in holders and was_destroyed(node, partition, value)
        ]
        if len(holders) < needed:
            report(
                f"{partition}: {value!r} was acknowledged, and is on the disks of {holders} only; "
                f"{needed} were promised"
            )
