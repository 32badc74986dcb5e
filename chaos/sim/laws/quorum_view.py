"""What the controllers' replicas of the quorum are at a look, read once for all laws."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from raft.core import RaftCore
from raft.quorum import ReplicaKey, VoterSet
from raft.ready import Role


class QuorumReplica(NamedTuple):
    """A running controller's replica of the quorum."""

    node: SimNode
    process: str
    core: RaftCore  # for what the other fields do not say; laws change nothing in it
    key: ReplicaKey
    epoch: int
    role: Role
    vote: ReplicaKey | None  # in this epoch, once it is durable
    high_watermark: int
    durable_end_offset: int
    epoch_start_offset: int | None  # while it leads
    voters: VoterSet  # the latest
    voters_offset: int


class QuorumView:
    """All running controllers, and which of them are not what they were at the look before."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._replicas: dict[int, QuorumReplica] = {}  # as of the last look, by node
        # As of the present look:
        self.replicas: list[QuorumReplica] = []
        self.changed: list[QuorumReplica] = []  # of ``replicas``
        self.is_new = False  # whether a replica has changed, came or went
        self.durable_ends: dict[ReplicaKey, int] = {}
        """How far each has the metadata log on disk. A controller that is down or lost its disk is
        missing: it may have acknowledged more than anybody saw of it."""

    def look(self, ran: Container[SimNode] | None = None) -> None:
        """``ran``: the nodes that have run since the last look; None stands for all."""
        before, now = self._replicas, dict[int, QuorumReplica]()
        self.changed = []
        for node_id, node in self._cluster.controllers.items():
            core, known = node.core, before.get(node_id)
            if core is None:
                continue
            if known is None or known.core is not core or ran is None or node in ran:
                found = _read(node, core)
                if found != known:
                    self.changed.append(found)
                    known = found
            assert known is not None
            now[node_id] = known
        self.is_new = bool(self.changed) or len(now) != len(before)
        if self.is_new:
            self._replicas = now
            self.replicas = list(now.values())
            self.durable_ends = {each.key: each.durable_end_offset for each in self.replicas}


def _read(node: SimNode, core: RaftCore) -> QuorumReplica:
    history = core.voter_history
    return QuorumReplica(
        node,
        node.incarnation,
        core,
        core.local,
        core.epoch,
        core.role,
        core.vote if core.promises_durable else None,
        core.high_watermark,
        core.log.durable_end_offset,
        core.epoch_start_offset,
        history.latest,
        history.latest_offset,
    )
