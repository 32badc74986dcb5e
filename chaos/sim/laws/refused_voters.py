"""Refusals to change the quorum's voters."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.arrivals import Arrivals
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from raft.quorum import VoterSet
from runtime.quorum.messages import ADD_VOTER, REMOVE_VOTER, UPDATE_VOTER
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb


class VotersAreRefusedForAReason(Law):
    """A leader that finds no such voter does not have it among its voters, and one that finds a
    voter twice has it. It has decided on the voters of the arrival or of the answer."""

    name = "changes of voters are refused for a reason"
    cadence = Cadence.TOLD
    hears = (ADD_VOTER, REMOVE_VOTER, UPDATE_VOTER)
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._arrivals = Arrivals[VoterSet]()

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is Stage.SENT or (now := self._voters_at(said.target)) is None:
            return
        if (then := self._arrivals.met(stage, said, now)) is not None:
            self._check(said, then, now)

    def _voters_at(self, machine: str) -> VoterSet | None:
        for node in self._cluster.controllers.values():
            if node.host == machine and node.core is not None:
                return node.core.voters
        return None

    def _check(self, said: Said, then: VoterSet, now: VoterSet) -> None:
        error = pb.VoterChangeResponse.FromString(said.answer).error
        # The fields by which a voter is named are the same in all three.
        request = pb.RemoveVoterRequest.FromString(said.request)
        if said.method == ADD_VOTER:
            asked = pb.AddVoterRequest.FromString(said.request)
            is_there = [found.get(asked.voter_id) is not None for found in (then, now)]
            is_right = error != ErrorCode.DUPLICATE_VOTER or any(is_there)
        else:
            disks = [
                None if voter is None else voter.key.directory_id
                for voter in (found.get(request.voter_id) for found in (then, now))
            ]
            is_named = [disk == request.voter_directory_id for disk in disks]
            is_right = error != ErrorCode.VOTER_NOT_FOUND or not all(is_named)
        self.looked += 1
        if not is_right:
            name = said.method.rpartition("/")[2]
            self._report(
                f"{said.target} answers {name} of voter {request.voter_id} with "
                f"{ErrorCode(error).name}; its voters are {now}"
            )
