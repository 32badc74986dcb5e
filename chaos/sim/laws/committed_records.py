"""The records that replicas have committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import (
    START,
    Place,
    batches_from,
)
from chaos.sim.cluster.view import online
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from metadata.image import MetadataImage
from metadata.partitions import PartitionState
from stele.ids import PartitionId
from stele.wire.batch import BatchHeader
from storage.log import PartitionLog


class Committed(NamedTuple):
    """A batch as it was on the first replica that committed it."""

    last_offset: int
    crc: int
    leader_epoch: int
    newest_ms: int
    size_bytes: int

    @classmethod
    def of(cls, header: BatchHeader) -> Self:
        return cls(
            header.last_offset,
            header.crc,
            header.leader_epoch,
            header.max_timestamp_ms,
            header.size_bytes,
        )


class CommittedRecordsStay(Law):
    """Committed prefixes are the same everywhere and are never cut; epoch caches agree with
    logs.

    The first replica seen to commit a batch defines it. A partition's leader always has every
    committed record, except for those that a recorded unclean election has cut. After such an
    election, the committed records of the new leader stay committed. The other replicas are
    compared again once they are in the ISR. ``CompactedLogsKeepTheLastValues`` compares compacted
    logs.
    """

    name = "what is committed stays"
    cadence = Cadence.SELDOM

    def __init__(self, metadata: CommittedMetadata) -> None:
        self.truncations = 0
        self._metadata = metadata
        self._batches: dict[PartitionId, dict[int, Committed]] = {}  # by base offset
        self._ends: dict[PartitionId, int] = {}
        # Unclean elections whose leader was already seen, so that their cut is known.
        self._unclean: dict[PartitionId, int] = {}
        # By process and partition: (log, its truncation generation, what to read next). A replica
        # that is removed and added again gets a new log.
        self._read: dict[tuple[str, PartitionId], tuple[PartitionLog, int, Place]] = {}
        # How far the replica was committed when it was last read: until this changes, there is
        # nothing to read.
        self._compared: dict[tuple[str, PartitionId], int] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.metadata)

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = self._metadata.newest
        cut = set() if image is None else self._cut_by_unclean_elections(cluster, image)
        for node, replica in online(cluster):
            if replica.id in cut or replica.log.config.compact:
                continue
            elections = self._unclean.get(replica.id, 0)
            if replica.machine.state.unclean_elections != elections or (
                elections and node.id not in replica.machine.state.isr
            ):
                continue  # it may still have records that the unclean election has cut
            self._compare(cluster, node, replica, report)
            if image is not None and replica.machine.is_leader:
                self._check_leader(node, replica, image, report)

    def _cut_by_unclean_elections(
        self, cluster: SimCluster, image: MetadataImage
    ) -> set[PartitionId]:
        """Forget what unclean elections have cut. Returns the partitions whose newly elected leader
        was not seen yet."""
        unseen = set()
        for topic, number, state in image.sorted_partitions():
            partition = PartitionId(topic.topic_id, number)
            if state.unclean_elections > self._unclean.get(partition, 0):
                unseen.add(partition)
        for node, replica in online(cluster) if unseen else ():
            if replica.id in unseen and replica.machine.is_leader:
                elections = replica.machine.state.unclean_elections
                state_now = image.partition(*replica.id)
                if state_now is not None and elections == state_now.unclean_elections:
                    self._keep_what_it_has(cluster, node, replica)
                    self._unclean[replica.id] = elections
                    unseen.discard(replica.id)
        return unseen

    def _keep_what_it_has(self, cluster: SimCluster, node: SimNode, leading: Replica) -> None:
        known, kept, end = self._batches.get(leading.id, {}), {}, 0
        for _, header in batches_from(node, repr(leading)):
            found = Committed.of(header)
            if known.get(header.base_offset) != found:
                break
            kept[header.base_offset] = found
            end = header.next_offset
        self._batches[leading.id], self._ends[leading.id] = kept, end
        for key in [key for key in self._read if key[1] == leading.id]:
            del self._read[key], self._compared[key]

    def _compare(
        self, cluster: SimCluster, node: SimNode, replica: Replica, report: Report
    ) -> None:
        log = replica.log
        key = node.incarnation, replica.id
        generation, place = log.truncation_generation, START
        committed = min(replica.machine.high_watermark, log.end_offset)
        read = self._read.get(key)
        if read is not None and read[0] is log:
            if read[1] != generation:
                self.truncations += 1
            elif self._compared.get(key) == committed:
                return
            else:
                place = read[2]
        known = self._batches.setdefault(replica.id, {})
        for at, header in batches_from(node, repr(replica), place):
            if header.next_offset > committed:
                break
            found = Committed.of(header)
            first = known.setdefault(header.base_offset, found)
            if first != found:
                report(
                    f"{replica!r} on broker {node.id} has {found} at {header.base_offset}, "
                    f"where {first} was committed"
                )
            epoch = log.epochs.epoch_for(header.base_offset)
            is_deleted = header.base_offset < log.start_offset
            if epoch != header.leader_epoch and not is_deleted:
                report(
                    f"{replica!r} on broker {node.id}: its epochs say {epoch} at "
                    f"{header.base_offset}, its log {header.leader_epoch}"
                )
            self.looked += header.record_count
            self._ends[replica.id] = max(self._ends.get(replica.id, 0), header.next_offset)
            place = at.behind(header)
        self._read[key] = log, generation, place
        self._compared[key] = committed

    def is_committed(self, partition: PartitionId, header: BatchHeader) -> bool:
        """Whether this very batch was seen to be committed."""
        known = self._batches.get(partition, {}).get(header.base_offset)
        return known == Committed.of(header)

    def batches_of(self, partition: PartitionId) -> Mapping[int, Committed]:
        """All batches ever seen to be committed, by base offset, also those that are gone now."""
        return self._batches.get(partition, {})

    def is_up_to(self, partition: PartitionId, state: PartitionState) -> bool:
        """Whether it is known what all unclean elections have cut."""
        return state.unclean_elections == self._unclean.get(partition, 0)

    def last_batch(self, partition: PartitionId) -> tuple[int, int, int] | None:
        """(base offset, last offset, CRC) of the last batch that was committed."""
        known = self._batches.get(partition)
        return None if not known else (last := max(known), *known[last][:2])

    def _check_leader(
        self, node: SimNode, replica: Replica, image: MetadataImage, report: Report
    ) -> None:
        state = image.partition(*replica.id)
        if (
            state is None
            or state.leader != node.id
            or state.leader_epoch != replica.machine.leader_epoch
        ):
            return
        committed = self._ends.get(replica.id, 0)
        if replica.log.end_offset < committed:
            report(
                f"{replica!r}: its leader {node.id} ends at {replica.log.end_offset}, "
                f"and {committed} was committed"
            )
