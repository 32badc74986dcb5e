"""What holds of the replicas of partitions, as the committed metadata has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.sim.laws import Report, newest_image
from metadata.image import MetadataImage

if TYPE_CHECKING:
    from chaos.sim.cluster import SimCluster


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
