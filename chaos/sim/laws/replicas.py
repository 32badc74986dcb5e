"""What holds of the replicas of partitions, as the committed metadata has them."""

from __future__ import annotations

from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import newest_image
from chaos.sim.laws.committed import Report
from metadata.effective import min_insync_replicas
from metadata.image import MetadataImage


class ReplicasFitTogether:
    """ISR and ELR are replicas; a reassignment has all its parts, or there is none."""

    name = "replicas fit together"

    def __init__(self) -> None:
        self._image: MetadataImage | None = None

    def check(self, cluster: SimCluster, report: Report) -> None:
        image = newest_image(cluster)
        if image is None or image is self._image:
            return
        self._image = image
        for topic, number, state in image.sorted_partitions():
            replicas, original = {*state.replicas}, {*state.original_replicas}
            target = {*state.target_replicas}
            adding, removing = {*state.adding_replicas}, {*state.removing_replicas}
            moving = (
                replicas == target | original
                and adding == target - original
                and removing == original - target
                and target != original
            )
            fits = (
                len(replicas) == len(state.replicas)
                and {*state.isr, *state.elr} <= replicas
                and not {*state.isr} & {*state.elr}
                and (moving if original else not adding | removing)
            )
            if not fits:
                report(f"{topic.name}-{number}: {state}")


class LeadersGoByTheirMetadata:
    """A leader's ISR, epochs and min.insync.replicas are those of one image, which its broker has
    applied.

    The controller decides on all of them together. With one of them ahead of the others a leader
    commits what the controller holds to be impossible.
    """

    name = "leaders go by their metadata"

    def check_leader(self, node: SimNode, leading: Replica, report: Report) -> None:
        running = node.running
        if running is None or running.broker is None:
            return
        if leading.state is not ReplicaState.ONLINE:
            return  # it serves nothing, and is told nothing more until another leads
        image, machine = running.broker.image, leading.machine
        state = image.partition(*leading.id)
        if state is None:
            return  # deleted: it is about to go
        needed = min(min_insync_replicas(image, leading.topic), state.replication_factor)
        if machine.state != state or machine.min_insync != needed:
            report(
                f"{leading!r}: broker {node.id} goes by {machine.state} and needs "
                f"{machine.min_insync} in sync; its metadata say {state} and {needed}"
            )
