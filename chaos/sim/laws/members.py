"""What members of an ISR and eligible leaders have on disk."""

from __future__ import annotations

from typing import Self

from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import online
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from metadata.partitions import PartitionState
from stele.ids import PartitionId


class MembersHaveEverything(Law):
    """Every member of an ISR, and every eligible leader, has everything committed on disk. What any
    replica shows a consumer is committed.

    ``highest``: the highest high watermark ever seen, by partition.
    """

    name = "members have everything"
    cadence = Cadence.SELDOM

    def __init__(
        self,
        cluster: SimCluster,
        metadata: CommittedMetadata,
        highest: dict[PartitionId, int],
        report: Report,
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._highest = highest
        self._report = report

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.metadata, scene.high_watermarks, scene.report)

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = self._metadata.newest
        if image is None:
            return
        replicas: dict[PartitionId, list[tuple[SimNode, Replica]]] = {}
        for node, replica in online(cluster):
            replicas.setdefault(replica.id, []).append((node, replica))
        for topic, number, state in image.sorted_partitions():
            partition = PartitionId(topic.topic_id, number)
            committed = self._highest.get(partition, 0)
            self._compare(state, replicas.get(partition, []), committed, report)

    def shown(self, topic: str, number: int, end_offset: int) -> None:
        """A consumer was just shown the records below this offset, by whatever replica."""
        image = self._metadata.newest
        found = None if image is None else image.topic(topic)
        if found is None:
            return
        partition = PartitionId(found.topic_id, number)
        running = [each for each in online(self._cluster) if each[1].id == partition]
        self._compare(found.partitions[number], running, end_offset, self._report)

    def _compare(
        self,
        state: PartitionState,
        running: list[tuple[SimNode, Replica]],
        committed: int,
        report: Report,
    ) -> None:
        if state.unclean_elections or any(
            replica.machine.state.partition_epoch > state.partition_epoch for _, replica in running
        ):
            return  # its partition epoch is newer than any that a controller was seen with
        for node, replica in running:
            if not committed or node.id not in (*state.isr, *state.elr):
                continue
            self.looked += 1
            if replica.log.durable_offset < committed:
                report(
                    f"{replica!r}: broker {node.id} is in the ISR {state.isr} or eligible "
                    f"{state.elr}, has {replica.log.durable_offset} on disk, and {committed} "
                    "is committed"
                )
