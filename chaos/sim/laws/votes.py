"""Votes on disk."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from raft.quorum import ReplicaKey


class OneVotePerEpoch(Law):
    """A controller votes for one candidate in an epoch, also across a crash."""

    name = "one vote per epoch"
    cadence = Cadence.QUORUM

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        # Only durable votes: before its sync a vote promises nothing.
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for voter in self._scene.quorum.changed:
            if voter.vote is None:
                continue
            self.looked += 1
            first = self._votes.setdefault((voter.key, voter.epoch), voter.vote)
            if first != voter.vote:
                report(
                    f"controller {voter.node.id} voted for {first.id} and for {voter.vote.id} "
                    f"in epoch {voter.epoch}"
                )
