"""Replicas with bad sectors."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from stele.ids import PartitionId

_TRIES = 20
"""So many reads of a bad sector may still be under way, or come from callers that have not heard of
it yet."""


class UnreadableReplicasAreGivenUp(Law):
    """Nobody reads a replica with a bad sector again and again.

    Its broker gives it up as soon as the ISR has another member that can lead.
    """

    name = "unreadable replicas are given up"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        # How many reads had failed when the ISR was first seen with another member.
        self._failed: dict[tuple[str, PartitionId], int] = {}

    def look(self, cluster: SimCluster, report: Report) -> None:
        if not any(node.machine.disk.spoiled for node in cluster.brokers.values()):
            return
        for node, replica in online(cluster):
            segments = node.machine.disk.files(node.replica_path(repr(replica)), ".log")
            self.looked += any(inode.bad_sectors for _, inode in segments)
            failed = sum(inode.failed_reads for _, inode in segments)
            key = node.incarnation, replica.id
            if not failed or not any(each != node.id for each in replica.machine.state.isr):
                self._failed.pop(key, None)
            elif failed - self._failed.setdefault(key, failed) > _TRIES:
                report(f"{replica!r} on {node.incarnation}: {failed} reads of bad sectors failed")
