"""The replicas of partitions in the committed metadata."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import newest_image
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report
from metadata.image import MetadataImage


class ReplicasFitTogether(Law):
    """ISR and ELR are disjoint sets of the partition's replicas. The original, target, adding and
    removing replicas of a reassignment fit together."""

    name = "replicas fit together"
    cadence = Cadence.METADATA

    def __init__(self) -> None:
        self._image: MetadataImage | None = None

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = newest_image(cluster)
        if image is None or image is self._image:
            return
        self._image = image
        for topic, number, state in image.sorted_partitions():
            self.looked += 1
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
