"""Log directories that are offline, and the replicas in them (KIP-858)."""

from __future__ import annotations

from typing import Final

from broker.replication.replica import ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import hosted_by
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, PartitionState
from stele.ids import PartitionId

WITHIN_S: Final = 20.0
"""The controller hears of a directory that fails with the next heartbeat, and of a replica's
directory some requests later. A lease may still rest on a heartbeat from before the failure."""


class OfflineReplicasLeadNothing(Law):
    """A replica in a log directory that is offline leads nothing, and is in an ISR only as its last
    member. This holds at once of what the metadata call offline. Of what has failed it holds some
    time later, if the broker has had a lease since."""

    name = "replicas in offline directories lead nothing"
    cadence = Cadence.SELDOM
    proof = Proof.RARE

    def __init__(self) -> None:
        # When the broker of each replica that cannot be used was first seen with a lease.
        self._since: dict[tuple[str, PartitionId], float] = {}

    def look(self, cluster: SimCluster, report: Report) -> None:
        leading = cluster.established_controller
        if leading is None:
            return
        assert leading.node is not None
        assert leading.node.controller is not None
        image = leading.node.controller.image
        if any(each.offline_directories for each in image.brokers.values()):
            self._look_at_metadata(image, report)
        seen: set[tuple[str, PartitionId]] = set()
        for node in cluster.brokers.values():
            broker = node.broker
            if broker is None or not broker.lease_valid:
                continue
            for partition in _offline_replicas(node):
                key = node.incarnation, partition
                seen.add(key)
                since = self._since.setdefault(key, cluster.simulation.now)
                if cluster.simulation.now - since > WITHIN_S:
                    self._look_at_replica(node, image, partition, report)
        self._since = {key: since for key, since in self._since.items() if key in seen}

    def _look_at_metadata(self, image: MetadataImage, report: Report) -> None:
        for topic, number, state in image.sorted_partitions():
            for member in state.isr:
                if not image.has_online(member, state.directory_of(member)):
                    self.looked += 1
                    if wrong := wrong_member(state, member):
                        report(f"{topic.name}-{number}: by the metadata, {wrong}: {state}")

    def _look_at_replica(
        self, node: SimNode, image: MetadataImage, partition: PartitionId, report: Report
    ) -> None:
        state = image.partition(*partition)
        if state is not None:
            self.looked += 1
            if wrong := wrong_member(state, node.id):
                report(f"partition {partition.partition} for {WITHIN_S:g} s: {wrong}: {state}")


def wrong_member(state: PartitionState, broker_id: int) -> str:
    """What is wrong with a partition whose replica on this broker is in an offline directory."""
    if state.leader == broker_id:
        return f"broker {broker_id} leads, and its log directory is offline"
    if broker_id in state.isr and (len(state.isr) > 1 or state.leader != NO_LEADER):
        return f"broker {broker_id} is in sync, and its log directory is offline"
    return ""


def _offline_replicas(node: SimNode) -> list[PartitionId]:
    """The replicas of a running broker whose directory has failed since the start."""
    return [
        replica.id
        for replica in hosted_by(node)
        if replica.state is ReplicaState.OFFLINE and replica.directory.offline is not None
    ]
