"""Heartbeats that a deposed controller has acknowledged."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.quorum_leaders import OneLeaderPerQuorumEpoch
from chaos.sim.laws.scene import Report, Scene


class LeadersAcknowledgeHeartbeats(Law):
    """A controller acknowledges no heartbeat that was sent after the next one was elected.

    The acknowledgement begins a lease when the heartbeat was sent. The next controller gives each
    broker one session from its election on. So every lease of the deposed controller ends before
    the next one fences a silent broker.
    """

    name = "leaders acknowledge heartbeats"
    cadence = Cadence.NODES

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._leaders = scene.law(OneLeaderPerQuorumEpoch)
        # By process: when the newest heartbeat was sent that it knows to be acknowledged.
        self._sent_at: dict[str, float] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in self._scene.ran:
            broker = node.broker
            if broker is None or not broker.has_begun:
                continue
            ago_s, asked = broker.acknowledged_ago_s, broker.heartbeats_to
            if ago_s is None or asked is None or asked.leader_id is None:
                continue
            sent_at = cluster.simulation.now - ago_s
            if sent_at > self._sent_at.get(node.incarnation, -1.0) + _CLOSE_S:
                self._sent_at[node.incarnation] = sent_at
                self._look_at(node, asked.leader_id, sent_at, report)

    def _look_at(self, node: SimNode, controller: int, sent_at: float, report: Report) -> None:
        self.looked += 1
        deposed_at = self._leaders.deposed_at(controller)
        if deposed_at is not None and sent_at > deposed_at + _CLOSE_S:
            report(
                f"controller {controller} acknowledged a heartbeat that broker {node.id} sent at "
                f"{sent_at:.3f}, and another one was elected at {deposed_at:.3f}"
            )


_CLOSE_S = 1e-6  # times that differ by less are the same, computed in two ways
