"""Writes that clients were told of."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.replica_logs import (
    is_durable,
    was_destroyed,
)
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report


class Acknowledged(Law):
    """Every acknowledged record is on as many disks as promised, at the moment when the client
    hears of it."""

    name = "acknowledged means on disk"
    cadence = Cadence.TOLD

    def check_record(
        self, cluster: SimCluster, partition: str, value: bytes, needed: int, report: Report
    ) -> None:
        """``value``: bytes that only this record contains, uncompressed."""
        self.looked += 1
        holders = []
        for node in cluster.brokers.values():
            if is_durable(node, partition, value):
                holders.append(node.id)
                if len(holders) == needed:
                    return
        # The acknowledgement may have been under way when a disk was damaged.
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
