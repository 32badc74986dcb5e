"""What the nodes of a simulated cluster hold in memory, seen from outside."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from metadata.image import MetadataImage
from stele.ids import PartitionId


def images_of(cluster: SimCluster) -> Iterator[MetadataImage]:
    """The committed metadata as each controller and broker on a running node knows it."""
    for node in cluster.nodes.values():
        running = node.running
        if running is not None and running.controller is not None:
            yield running.controller.image
        if running is not None and running.broker is not None:
            yield running.broker.image


def newest_image(cluster: SimCluster) -> MetadataImage | None:
    """The newest metadata of the running controllers. Others may have known more
    (``CommittedMetadata``)."""
    newest = None
    for node in cluster.controllers.values():
        running = node.running
        if running is not None and running.controller is not None:
            image = running.controller.image
            if newest is None or image.offset > newest.offset:
                newest = image
    return newest


def hosted_by(node: SimNode) -> Collection[Replica]:
    """Every replica of a running broker, online or not."""
    broker = node.broker
    return () if broker is None else broker.replicas.hosted.by_id.values()


def online(cluster: SimCluster) -> list[tuple[SimNode, Replica]]:
    """The replicas of running brokers that are online, and so have a log."""
    return [
        (node, replica)
        for node in cluster.brokers.values()
        for replica in hosted_by(node)
        if replica.state is ReplicaState.ONLINE
    ]


def replica_of(node: SimNode, partition: PartitionId) -> Replica | None:
    """A running broker's replica, if it is online."""
    broker = node.broker
    replica = None if broker is None else broker.replicas.get(partition)
    return replica if replica is not None and replica.state is ReplicaState.ONLINE else None


def waits_for_restart(node: SimNode) -> bool:
    """Whether a running broker has a log that only its next start can recover: a change of it was
    cut short, and no other broker has all its records. An operator finds this in the broker's log.
    """
    return any(
        replica.state is ReplicaState.OFFLINE and replica.directory.offline is None
        for replica in hosted_by(node)
    )
