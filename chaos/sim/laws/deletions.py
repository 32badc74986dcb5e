"""Records that were confirmed as deleted."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import online
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene


class DeletedRecordsStayDeleted(Law):
    """No replica that leads or may lead begins below an offset that confirmed a deletion.

    Partitions with an unclean election are left out: the deletion need not have waited for the
    replica that was elected.
    """

    name = "deleted records stay deleted"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self, metadata: CommittedMetadata) -> None:
        self._metadata = metadata
        self._starts: dict[tuple[str, int], int] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.metadata)

    def deleted(self, topic: str, partition: int, offset: int) -> None:
        """An administrator was told of it. Only for topics whose names are never used again."""
        place = topic, partition
        self._starts[place] = max(self._starts.get(place, 0), offset)

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = self._metadata.newest
        if image is None or not self._starts:
            return
        for node, replica in online(cluster):
            wanted = self._starts.get((replica.topic, replica.id.partition), 0)
            state = image.partition(*replica.id)
            if not wanted or state is None or state.unclean_elections:
                continue
            if node.id not in (*state.isr, *state.elr):
                continue
            self.looked += 1
            if replica.log.start_offset < wanted:
                report(
                    f"{replica!r} begins at {replica.log.start_offset} on broker {node.id}, of the "
                    f"ISR {state.isr} or eligible {state.elr}, and was deleted up to {wanted}"
                )
