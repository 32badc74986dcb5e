"""What the nodes of a simulated cluster hold in memory, seen from outside."""

from __future__ import annotations

from collections.abc import Iterator

from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from metadata.image import MetadataImage
from stele.ids import PartitionId


def images_of(cluster: SimCluster) -> Iterator[MetadataImage]:
    """The committed metadata as each part of each node that runs knows it."""
    for node in cluster.nodes.values():
        running = node.running
        if running is not None and running.controller is not None:
            yield running.controller.image
        if running is not None and running.broker is not None:
            yield running.broker.image


def newest_image(cluster: SimCluster) -> MetadataImage | None:
    """Of the controllers that run now; others may have known more (``CommittedMetadata``)."""
    newest = None
    for node in cluster.controllers.values():
        running = node.running
        if running is not None and running.controller is not None:
            image = running.controller.image
            if newest is None or image.offset > newest.offset:
                newest = image
    return newest


def online(cluster: SimCluster) -> Iterator[tuple[SimNode, Replica]]:
    for node in cluster.brokers.values():
        running = node.running
        if running is not None and running.broker is not None:
            for replica in running.broker.replicas:
                if replica.state is ReplicaState.ONLINE:
                    yield node, replica


def replica_of(node: SimNode, partition: PartitionId) -> Replica | None:
    """A running broker's replica, if it is online."""
    if not node.alive or node.node is None or node.node.broker is None:
        return None
    for replica in node.node.broker.replicas:
        if replica.id == partition and replica.state is ReplicaState.ONLINE:
            return replica
    return None
