"""Compares log starts that replicas call durable with what a power loss would leave."""

from __future__ import annotations

import posixpath

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from stele.ids import TopicPartition
from storage.checkpoints import LOG_START_FILE, decode_offsets


class DurableStartsAreDurable(Law):
    """A start that a replica calls durable, and reports so to its leader, is in the file of log
    starts that a power loss would leave."""

    name = "durable starts are durable"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in online(cluster):
            claimed = replica.directory.durable_start_offset(replica.log)
            if claimed == 0:
                continue
            self.looked += 1
            kept = self._kept(node, repr(replica)).get(replica.log.key, 0)
            if kept < claimed:
                report(
                    f"{replica!r} on broker {node.id} calls the start {claimed} durable, and a "
                    f"loss of power would leave {kept}"
                )

    def _kept(self, node: SimNode, replica: str) -> dict[TopicPartition, int]:
        path = f"{posixpath.dirname(node.replica_path(replica))}/{LOG_START_FILE}"
        content = node.machine.disk.durable_file(path)
        return decode_offsets(content.decode(), path) if content else {}
