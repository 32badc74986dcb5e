"""Leaders of partitions that controllers choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import whole_batches
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, PartitionState
from metadata.records import decode as decode_record
from stele.ids import PartitionId
from stele.wire.batch import check_crc, decode


class LeadersAreChosenInOrder(Law):
    """A leader stays while it can lead well: it is in the ISR, active, and has room. Only an
    election of the preferred leader, which changes nothing else, replaces such a leader.

    The next leader is the first replica, in the order of the assignment, that can lead well. If
    none can, it is the first one in the ISR that is active. There is no leader only if nobody in
    the ISR is active.

    The law replays the committed decisions one by one. ``image``: after the last of them.
    """

    name = "leaders are chosen in order"
    cadence = Cadence.METADATA
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._image: MetadataImage | None = None

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        newest, known = self._scene.image, self._image
        if newest is None or (known is not None and newest.offset <= known.offset):
            return
        self._image = newest
        if known is None:
            return
        for node in cluster.controllers.values():
            controller = None if node.running is None else node.running.controller
            if controller is not None and controller.image is newest:
                self._follow(node, known, newest.offset, report)
                return

    def _follow(self, node: SimNode, image: MetadataImage, last: int, report: Report) -> None:
        for first, end, values in _decisions(node, image.offset + 1, last):
            if first != image.offset + 1:
                return  # a snapshot has taken the place of what lay between
            delta = MetadataDelta(image)
            delta.replay_values(first, values)
            delta.advance_to(end - 1)
            after = delta.apply()
            self._judge(image, after, values, report)
            image = after

    def _judge(
        self, before: MetadataImage, after: MetadataImage, values: list[bytes], report: Report
    ) -> None:
        changes = [
            record.partition_change
            for record in map(decode_record, values)
            if record.HasField("partition_change")
        ]
        times = Counter(PartitionId(each.topic_id, each.partition) for each in changes)
        for partition, count in times.items():
            was, state = before.partition(*partition), after.partition(*partition)
            if count > 1 or was is None or state is None or was.leader_epoch == state.leader_epoch:
                continue
            self.looked += 1
            if wrong := wrong_choice(was, state, after):
                report(
                    f"partition {partition.partition}, at {after.offset}: {wrong}: {was} {state}"
                )


def wrong_choice(was: PartitionState, state: PartitionState, image: MetadataImage) -> str:
    """What is wrong with the leader that a change has chosen; nothing if it is right."""
    able = [
        each
        for each in state.replicas
        if each in state.isr
        and image.is_active(each)
        and image.has_online(each, state.directory_of(each))
    ]
    roomy = [each for each in able if image.has_room(each)]
    leader, preferred = state.leader, state.preferred_leader
    if leader == was.leader:
        return ""
    if was.leader in roomy:
        if leader == preferred and leader in roomy and _differs_in_leader_only(was, state, image):
            return ""
        return f"{leader} replaces {was.leader}, which can lead"
    if not able:
        return ""
    first = (roomy or able)[0]
    if leader == NO_LEADER:
        return f"nobody leads, and {first} can"
    if leader != first and not (leader == preferred and leader in roomy):
        return f"{leader} leads, and {first} comes first"
    return ""


def _differs_in_leader_only(
    was: PartitionState, state: PartitionState, image: MetadataImage
) -> bool:
    """Members of the ISR that have no room may leave it with any change."""
    left = set(was.isr) - set(state.isr)
    return (
        was.replicas == state.replicas
        and was.elr == state.elr
        and set(state.isr) <= set(was.isr)
        and not any(image.has_room(each) for each in left)
    )


def _decisions(node: SimNode, first: int, last: int) -> Iterator[tuple[int, int, list[bytes]]]:
    """Each batch of metadata between two offsets: its first offset, the one behind it, and its
    records. The quorum's own records are none of the metadata's."""
    for _, inode in node.machine.disk.files(node.metadata_log, ".log"):
        for position, header in whole_batches(inode.data):
            if header.base_offset > last:
                return
            if header.base_offset < first:
                continue
            if not check_crc(inode.data, position, header):
                return
            values: list[bytes] = []
            if not header.is_control:
                values = [record.value or b"" for record in decode(inode.data, position)]
            yield header.base_offset, header.next_offset, values
