"""Consumers that replicas send away."""

from __future__ import annotations

from typing import Self

from broker.partition.view import Role
from broker.replication.replica import Replica
from chaos.sim.cluster.client import FETCH_MAX_WAIT_MS
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import replica_of
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from metadata.partitions import PartitionState
from stele.errors import ErrorCode
from stele.ids import PartitionId


class ReadersAreServed(Law):
    """A replica that leads, or follows and is in the ISR, does not send consumers away as if it
    did neither (KIP-392). It may while its broker knows that its metadata are old: others may lead,
    and the ISR may be another one. A leader without a lease may send those away that have waited in
    vain, so a leader is not judged by what it says after the whole wait of a fetch."""

    name = "readers are served"
    cadence = Cadence.REPLICAS
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        # When each was last seen to change, and the state that the metadata gave it then.
        self._since: dict[Replica, tuple[float, PartitionState]] = {}
        self._deposed: dict[int, float] = {}  # when a broker was last seen to have old metadata

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        now = cluster.simulation.now
        for _, replica in (*self._scene.leading, *self._scene.following):
            self._since[replica] = now, replica.machine.state
        for node in cluster.brokers.values():
            if node.broker is not None and node.broker.deposed:
                self._deposed[node.id] = now

    def refused(self, topic: str, partition: int, broker: int, error: int, waited_s: float) -> None:
        """A broker has refused a consumer that waited so long for its answer."""
        cluster = self._scene.cluster
        node = cluster.brokers[broker]
        if error != ErrorCode.NOT_LEADER_OR_FOLLOWER or node.broker is None:
            return
        named = node.broker.image.topic(topic)
        if named is None or node.broker.deposed:
            return
        replica = replica_of(node, PartitionId(named.topic_id, partition))
        if replica is None or replica not in self._since:
            return
        machine, now = replica.machine, cluster.simulation.now
        since, state = self._since[replica]
        if machine.state != state:
            return  # it has changed in this very turn, and nobody has looked yet
        if now - max(since, self._deposed.get(broker, 0.0)) <= waited_s:
            return  # it may have had a reason when it was asked
        if machine.is_leader and waited_s * 1000 >= FETCH_MAX_WAIT_MS:
            return
        self.looked += 1
        follows = machine.role is Role.FOLLOWER and broker in machine.state.isr
        if machine.is_leader or follows:
            self._scene.report(
                f"{replica!r} on broker {broker} is {machine.role.value} in {machine.state}, and "
                "sends consumers away"
            )
