"""Compares the checkpoints of a directory with its logs."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report


class CheckpointsClaimWhatIsThere(Law):
    """No checkpoint of a directory claims more of a log than the log has: otherwise the log would
    seem corrupt at the next start. A new log under an old name begins without checkpoints."""

    name = "checkpoints claim what is there"
    cadence = Cadence.SELDOM

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in online(cluster):
            log, held = replica.log, replica.directory.checkpointed(replica.log)
            self.looked += max(held) > 0
            if max(held) > log.end_offset:
                report(
                    f"{replica!r} on broker {node.id} ends at {log.end_offset}: its checkpoints "
                    f"of recovery point, high watermark and start claim {held}"
                )
