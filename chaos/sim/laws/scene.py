"""What the laws of one run share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import hosted_by
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.quorum_view import QuorumView
from metadata.image import MetadataImage
from stele.ids import PartitionId

L = TypeVar("L")

Report = Callable[[str], None]


class Scene:
    """What laws look at, and what they have found out for each other.

    A process changes its memory only by running. So a look at the nodes that have run sees
    everything that a look at all nodes would see.
    """

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self.cluster = cluster
        self.report = report
        self.metadata = CommittedMetadata(cluster)
        self.high_watermarks: dict[PartitionId, int] = {}
        """The highest high watermark ever seen of each partition."""
        # The fields below are as of the present look.
        self.quorum = QuorumView(cluster)
        self.image: MetadataImage | None = None
        self.image_is_new = False
        self.ran: list[SimNode] = []  # live nodes that have run since the last look
        self.hosted: list[tuple[SimNode, Replica]] = []  # replicas of at least the nodes that ran
        self.leading: list[tuple[SimNode, Replica]] = []  # only replicas that have changed
        self.following: list[tuple[SimNode, Replica]] = []
        self._laws: dict[type, object] = {}
        # Everything that laws of replicas look at, as of the last look.
        self._standings: dict[Replica, tuple[object, ...]] = {}

    def add(self, law: object) -> None:
        self._laws[type(law)] = law

    def law(self, kind: type[L]) -> L:
        """The run's law of this class."""
        law = self._laws[kind]
        assert isinstance(law, kind)
        return law

    def look_at_nodes(self, stirred: Iterable[SimNode]) -> None:
        self.ran = [node for node in stirred if node.running is not None]

    def look_at_metadata(self, image: MetadataImage | None) -> None:
        self.image_is_new = image is not self.image
        self.image = image

    def look_at_replicas(self) -> None:
        """Find the replicas that have changed. New metadata may concern any replica, so after it
        all replicas count as changed."""
        if self.image_is_new:
            self._standings.clear()
        self.leading, self.following = [], []
        nodes = self.cluster.nodes.values() if self.image_is_new else self.ran
        self.hosted = [(node, replica) for node in nodes for replica in hosted_by(node)]
        standings = self._standings
        for node, replica in self.hosted:
            machine, is_online = replica.machine, replica.state is ReplicaState.ONLINE
            standing = (
                machine.state,
                machine.min_insync,
                machine.role,
                machine.high_watermark,
                replica.log.durable_offset if is_online else None,
            )
            if standings.get(replica) != standing:
                standings[replica] = standing
                group = self.leading if machine.is_leader else self.following
                group.append((node, replica))
