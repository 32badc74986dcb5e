"""Compares who joins and leaves the voters with what administrators asked for."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from raft.quorum import NO_DIRECTORY, ReplicaKey, VoterSet
from stele.wire.v1.raft_pb2 import (
    AddVoterRequest,
    RemoveVoterRequest,
)

# Calls to a controller, by its own service or the administrators' one, or to a broker.
_ADD_VOTER, _REMOVE_VOTER = "/AddVoter", "/RemoveVoter"


class VotersChangeAsAsked(Law):
    """A replica becomes a voter, or stops being one, only if a request named its node and disk."""

    name = "voters change as asked"
    cadence = Cadence.QUORUM
    hears = (_ADD_VOTER, _REMOVE_VOTER)
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._added: set[ReplicaKey] = set()
        self._removed: set[ReplicaKey] = set()
        # The newest two sets of each controller at the last look.
        self._seen: dict[int, tuple[VoterSet, VoterSet]] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is not Stage.ARRIVED:
            return
        request: AddVoterRequest | RemoveVoterRequest
        if said.method.endswith(_ADD_VOTER):
            request, asked = AddVoterRequest.FromString(said.request), self._added
        else:
            request, asked = RemoveVoterRequest.FromString(said.request), self._removed
        asked.add(ReplicaKey(request.voter_id, request.voter_directory_id or NO_DIRECTORY))

    def look(self, cluster: SimCluster, report: Report) -> None:
        for replica in self._scene.quorum.changed:
            node, history = replica.node, replica.core.voter_history
            before, after = history.previous, history.latest
            if before is after or (before, after) == self._seen.get(node.id):
                continue
            self._seen[node.id] = before, after
            gone = [voter.key for voter in before.voters if voter.key not in after]
            new = [voter.key for voter in after.voters if voter.key not in before]
            self.looked += len(gone) + len(new)
            wrong = [key for key in gone if not _is_named(key, self._removed)]
            wrong += [key for key in new if not _is_named(key, self._added)]
            if wrong:
                report(f"{node.incarnation} has {after} after {before}; nobody asked for {wrong}")


def _is_named(key: ReplicaKey, asked: set[ReplicaKey]) -> bool:
    return any(each.matches(key) for each in asked)
