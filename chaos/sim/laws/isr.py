"""Compares the disks of an ISR's members with the leader's high watermark."""

from __future__ import annotations

from typing import Self

from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from metadata.image import MetadataImage
from metadata.partitions import PartitionState


class IsrHasTheHighWatermark(Law):
    """Every member of the committed ISR has on disk everything below the leader's high
    watermark."""

    name = "the ISR has what its leader has committed"
    cadence = Cadence.REPLICAS

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = self._scene.image
        if image is None:
            return
        for node, replica in self._scene.leading:
            self._look_at_leader(cluster, node, replica, image, report)
        if not self._scene.image_is_new:  # with a new image, all leaders were looked at above
            for node, replica in self._scene.following:
                self._look_at_member(cluster, node, replica, image, report)

    def _look_at_leader(
        self,
        cluster: SimCluster,
        node: SimNode,
        leading: Replica,
        image: MetadataImage,
        report: Report,
    ) -> None:
        state = image.partition(*leading.id)
        if state is None or not _agree(state, leading, node):
            return
        for member in state.isr:
            other = cluster.brokers[member]
            replica = _replica(other, leading)
            if replica is not None:
                self._compare(other, replica, leading, report)

    def _look_at_member(
        self,
        cluster: SimCluster,
        node: SimNode,
        replica: Replica,
        image: MetadataImage,
        report: Report,
    ) -> None:
        """The member has run, perhaps without its leader."""
        state = image.partition(*replica.id)
        if state is None or state.leader < 0 or node.id not in state.isr:
            return
        leader = cluster.brokers[state.leader]
        leading = _replica(leader, replica)
        if leading is not None and leading.machine.is_leader and _agree(state, leading, leader):
            self._compare(node, replica, leading, report)

    def _compare(self, node: SimNode, replica: Replica, leading: Replica, report: Report) -> None:
        if replica.state is not ReplicaState.ONLINE:
            return
        end, high_watermark = replica.log.durable_offset, leading.machine.high_watermark
        self.looked += high_watermark > 0
        if end < high_watermark:
            report(
                f"{replica!r} on broker {node.id} is in the ISR, has {end} on disk, "
                f"below the high watermark {high_watermark}"
            )


def _replica(node: SimNode, of: Replica) -> Replica | None:
    """The node's replica of the same partition."""
    broker = node.broker
    return None if broker is None else broker.replicas.get(of.id)


def _agree(state: PartitionState, leading: Replica, node: SimNode) -> bool:
    """Whether the state names this leader and is not older than the state that the leader goes by.

    It is older if the controller that told the leader died before any law looked at it.
    """
    known = leading.machine.state
    return (
        state.leader == node.id
        and state.leader_epoch == known.leader_epoch
        and state.partition_epoch >= known.partition_epoch
    )
