"""The leaders of the quorum."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from raft.ready import Role, Status


class OneLeaderPerQuorumEpoch(Law):
    """An epoch of the quorum has one leader, and no process goes back to an earlier epoch."""

    name = "one leader per epoch of the quorum"
    cadence = Cadence.NODES

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._leaders: dict[int, int] = {}  # the one node that ever led, by epoch
        self._since: dict[int, float] = {}  # when it was first seen to lead, by epoch
        # The highest epoch of each process. (By process: one that dies may have been in an epoch
        # that it had not written to disk yet.)
        self._epochs: dict[str, int] = {}
        self._statuses: dict[int, Status] = {}  # the last status looked at, by node

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    @property
    def elections(self) -> int:
        """How many epochs had a leader."""
        return len(self._leaders)

    def leader_of(self, epoch: int) -> int | None:
        """None if nobody was seen to lead it."""
        return self._leaders.get(epoch)

    def deposed_at(self, node_id: int) -> float | None:
        """When another node was first seen to lead an epoch after all epochs that this one led.
        None if nobody was."""
        last = max((epoch for epoch, led in self._leaders.items() if led == node_id), default=-1)
        return min((at for epoch, at in self._since.items() if epoch > last), default=None)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in self._scene.ran:
            quorum = None if node.node is None else node.node.quorum
            status = None if quorum is None else quorum.status
            if status is not None and self._statuses.get(node.id) is not status:
                self._statuses[node.id] = status
                self._look_at(node, status, report)

    def _look_at(self, node: SimNode, status: Status, report: Report) -> None:
        self.looked += 1
        role, epoch, _ = status
        if role is Role.LEADER:
            leader = self._leaders.setdefault(epoch, node.id)
            self._since.setdefault(epoch, self._scene.cluster.simulation.now)
            if leader != node.id:
                report(f"nodes {leader} and {node.id} both lead the quorum's epoch {epoch}")
        process = node.incarnation
        if epoch < self._epochs.get(process, 0):
            report(f"{process} went back to the quorum's epoch {epoch}")
        self._epochs[process] = epoch
