"""The replicas that hold what is committed while others are down."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import (
    START,
    Place,
    first_base,
    readable_batches_from,
)
from chaos.sim.cluster.view import images_of
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from stele.ids import PartitionId


class SomeoneHasEverything(Law):
    """ISR and eligible leaders together hold a replica with every committed record, on disk."""

    name = "ISR or ELR hold what is committed"
    cadence = Cadence.RARELY

    def __init__(self, committed: CommittedRecordsStay) -> None:
        self._committed = committed
        # Partitions whose replicas were all damaged on purpose after a sync: none need hold all.
        self.damaged: set[str] = set()
        # Where the last committed batch was found. The next one is usually behind it.
        self._places: dict[tuple[int, str], Place] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.law(CommittedRecordsStay))

    def look(self, cluster: SimCluster, report: Report) -> None:
        leading = cluster.established_controller
        if leading is None:
            return  # other controllers may not know what is committed
        assert leading.node is not None
        assert leading.node.controller is not None
        image = leading.node.controller.image
        if any(image.offset < each.offset for each in images_of(cluster)):
            # It has just been elected, or is about to apply decisions that brokers have already. A
            # broker may have deleted the logs of a topic that is still in its image.
            return
        for topic, number, state in image.sorted_partitions():
            name = f"{topic.name}-{number}"
            partition = PartitionId(topic.topic_id, number)
            known = self._committed.last_batch(partition)
            if known is None or name in self.damaged:
                continue
            if not self._committed.is_up_to(partition, state):
                continue
            self.looked += 1
            members = sorted({*state.isr, *state.elr})
            if not any(self._has(cluster, cluster.brokers[each], name, known) for each in members):
                report(f"{name}: none of {members} has the batch committed at {known[0]}")

    def _has(
        self, cluster: SimCluster, node: SimNode, name: str, known: tuple[int, int, int]
    ) -> bool:
        """Whether a broker has this batch (base offset, last offset, CRC), or begins behind it. In
        the second case retention has taken it, and another law judges that."""
        place = self._places.get((node.id, name), START)
        if not self._begins_at_or_before(cluster, node, name, place, known[0]):
            place = START
        for at, header in readable_batches_from(node, name, place):
            if header.base_offset == known[0]:
                self._places[node.id, name] = at
                return (header.base_offset, header.last_offset, header.crc) == known
        first = first_base(node, name)
        return first is not None and first > known[0]

    def _begins_at_or_before(
        self, cluster: SimCluster, node: SimNode, name: str, place: Place, offset: int
    ) -> bool:
        """Whether a batch still stands at ``place`` and does not begin behind ``offset``."""
        found = next(readable_batches_from(node, name, place), None)
        return found is not None and found[0] == place and found[1].base_offset <= offset
