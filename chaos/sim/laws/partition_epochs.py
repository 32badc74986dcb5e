"""Epochs of partitions."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import newest_image
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from metadata.image import MetadataImage


class EpochsOnlyGrow(Law):
    """Leader epochs and partition epochs of the committed metadata only grow."""

    name = "epochs only grow"
    cadence = Cadence.METADATA
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        self._image: MetadataImage | None = None

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = newest_image(cluster)
        if image is None or (self._image is not None and image.offset <= self._image.offset):
            return
        if self._image is not None:
            for topic, number, before in self._image.sorted_partitions():
                now = image.partition(topic.topic_id, number)
                if now is None or now == before:
                    continue
                self.looked += 1
                if (
                    now.leader_epoch < before.leader_epoch
                    or now.partition_epoch <= before.partition_epoch
                    or (now.leader != before.leader and now.leader_epoch == before.leader_epoch)
                ):
                    report(f"{topic.name}-{number} went from {before} to {now}")
        self._image = image
