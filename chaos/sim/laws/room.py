"""Leaders whose disk is full."""

from __future__ import annotations

from typing import Final

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report

WITHIN_S: Final = 20.0
"""A broker notices a full disk within one second and waits two more for others to report theirs.
Its heartbeat may get lost."""


class LeadersHaveRoom(Law):
    """A leader whose disk is full does not stay leader while an in-sync replica with room could
    lead, and nothing else is wrong."""

    name = "leaders have room"
    cadence = Cadence.RARELY
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        # When a broker without room was first seen to lead: by (topic id, number, leader epoch).
        self._since: dict[tuple[bytes, int, int], float] = {}

    def look(self, cluster: SimCluster, report: Report) -> None:
        now = cluster.simulation.now
        wrong = dict.fromkeys(self._wrong(cluster), now)
        self._since = {key: self._since.get(key, now) for key in wrong}
        for key in [key for key, since in self._since.items() if now - since > WITHIN_S]:
            _, number, epoch = key
            report(
                f"{self._name_of(cluster, key[0])}-{number} has been led in epoch {epoch} for "
                f"{WITHIN_S:g} s by a broker without room, and others in sync have room"
            )
            self._since[key] = now

    def _wrong(self, cluster: SimCluster) -> list[tuple[bytes, int, int]]:
        full = {node.id for node in cluster.brokers.values() if _is_full(cluster, node)}
        if not full or not self._is_calm(cluster):
            return []
        image = cluster.image
        self.looked += any(state.leader in full for _, _, state in image.sorted_partitions())
        return [
            (topic.topic_id, number, state.leader_epoch)
            for topic, number, state in image.sorted_partitions()
            if state.leader in full
            and any(member not in full and image.is_active(member) for member in state.isr)
        ]

    def _is_calm(self, cluster: SimCluster) -> bool:
        """Every node works and reaches every other, and the controllers' disks have room."""
        if cluster.established_controller is None or cluster.simulation.fabric.has_cuts:
            return False
        for node in cluster.nodes.values():
            if not node.ready or node.process is None or node.process.paused:
                return False
        return not any(_is_full(cluster, node) for node in cluster.controllers.values())

    def _name_of(self, cluster: SimCluster, topic_id: bytes) -> str:
        topic = cluster.image.topic_by_id(topic_id)
        return "a topic" if topic is None else topic.name


def _is_full(cluster: SimCluster, node: SimNode) -> bool:
    return node.machine.disk.faults.quota_bytes is not None
