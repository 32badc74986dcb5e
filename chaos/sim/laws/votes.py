"""Votes on disk."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report
from raft.quorum import ReplicaKey


class OneVotePerEpoch(Law):
    """A controller votes for one candidate in an epoch, also across a crash."""

    name = "one vote per epoch"
    cadence = Cadence.QUORUM

    def __init__(self) -> None:
        # Only durable votes: before its sync a vote promises nothing.
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.controllers.values():
            core = node.core
            if core is None:
                continue
            vote = core.vote
            if vote is None or not core.promises_durable:
                continue
            self.looked += 1
            first = self._votes.setdefault((core.local, core.epoch), vote)
            if first != vote:
                report(
                    f"controller {node.id} voted for {first.id} and for {vote.id} "
                    f"in epoch {core.epoch}"
                )
