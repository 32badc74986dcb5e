"""What replicas that may lead know of producers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import online
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from metadata.partitions import PartitionState
from stele.ids import PartitionId


class _Known(NamedTuple):
    """What a replica knows of a producer, but for the times."""

    epoch: int
    batches: tuple[tuple[int, int], ...]  # the last sequence and the base offset of each


class MembersKnowTheProducers(Law):
    """Replicas that may lead, and whose logs hold the same, know the same batches of producers.

    So a batch that comes again is recognized, whichever of them leads. The records may be deleted
    long since. A compaction may remove batches that nothing tells of any more, so compacted logs
    are left out.
    """

    name = "members know the producers"
    cadence = Cadence.SELDOM

    def __init__(self, metadata: CommittedMetadata) -> None:
        self._metadata = metadata

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.metadata)

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = self._metadata.newest
        if image is None:
            return
        replicas: dict[PartitionId, dict[int, Replica]] = {}
        for node, replica in online(cluster):
            replicas.setdefault(replica.id, {})[node.id] = replica
        for topic, number, state in image.sorted_partitions():
            running = replicas.get(PartitionId(topic.topic_id, number), {})
            self._compare(state, running, report)

    def _compare(self, state: PartitionState, running: dict[int, Replica], report: Report) -> None:
        if state.unclean_elections or any(
            replica.machine.state.partition_epoch > state.partition_epoch
            for replica in running.values()
        ):
            return  # the partition has changed since the newest metadata that were seen
        first: dict[tuple[int, int], tuple[int, dict[int, _Known]]] = {}
        for broker_id, replica in sorted(running.items()):
            log = replica.log
            if broker_id not in (*state.isr, *state.elr) or log.config.compact:
                continue
            found = dict(_known(replica))
            other_id, other = first.setdefault(
                (log.end_offset, log.epochs.latest_epoch), (broker_id, found)
            )
            if other_id == broker_id:
                continue
            self.looked += 1
            if found != other:
                report(
                    f"{replica!r}: broker {other_id} knows the producers {other}, "
                    f"and broker {broker_id} knows {found}"
                )


def _known(replica: Replica) -> Iterator[tuple[int, _Known]]:
    for entry in replica.log.producers:
        batches = tuple((batch.last_sequence, batch.base_offset) for batch in entry.batches)
        yield entry.producer_id, _Known(entry.epoch, batches)
