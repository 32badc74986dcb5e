"""The metadata that leaders go by."""

from __future__ import annotations

from typing import Self

from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from metadata.effective import min_insync_replicas
from metadata.image import MetadataImage


class LeadersGoByTheirMetadata(Law):
    """A leader takes its ISR, epochs and min.insync.replicas from one image, which its broker has
    applied.

    The controller decides on all of them together. A leader that has one of them ahead of the
    others commits what the controller considers impossible.
    """

    name = "leaders go by their metadata"
    cadence = Cadence.REPLICAS

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        # By node and topic: the answer of the last image that was asked. Images do not change.
        self._needed: dict[tuple[int, str], tuple[MetadataImage, int]] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, leading in self._scene.leading:
            self._look_at(node, leading, report)

    def _look_at(self, node: SimNode, leading: Replica, report: Report) -> None:
        running = node.running
        if running is None or running.broker is None:
            return
        if leading.state is not ReplicaState.ONLINE:
            return  # it serves nothing, and hears nothing more until another replica leads
        image, machine = running.broker.image, leading.machine
        state = image.partition(*leading.id)
        if state is None:
            return  # the partition was deleted, and the replica will follow
        self.looked += 1
        needed = min(self._min_insync(node, image, leading.topic), state.replication_factor)
        if machine.state != state or machine.min_insync != needed:
            report(
                f"{leading!r}: broker {node.id} goes by {machine.state} and needs "
                f"{machine.min_insync} in sync; its metadata say {state} and {needed}"
            )
        missing = needed - len(state.isr)
        told = machine.is_under_min_isr, machine.is_at_min_isr
        if told != (missing > 0, missing == 0):
            report(
                f"{leading!r}: broker {node.id} says {told} of being under and at the least ISR; "
                f"{needed} are needed of {state}"
            )

    def _min_insync(self, node: SimNode, image: MetadataImage, topic: str) -> int:
        known = self._needed.get((node.id, topic))
        if known is None or known[0] is not image:
            known = self._needed[node.id, topic] = image, min_insync_replicas(image, topic)
        return known[1]
