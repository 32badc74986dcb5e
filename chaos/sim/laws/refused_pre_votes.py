"""Refusals of pre-votes."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from raft.ready import Role
from runtime.quorum.messages import VOTE
from stele.errors import ErrorCode
from stele.wire.v1.raft_pb2 import VoteRequest, VoteResponse

_KEPT: Final = 200


class _Follower(NamedTuple):
    """A follower that had not heard its leader for the fetch timeout."""

    process: str
    epoch: int
    log: tuple[int, int]  # last epoch, end offset


class PreVotesAreRefusedForAReason(Law):
    """A follower that has not heard its leader for the fetch timeout gives its pre-vote to every
    candidate whose log is no worse (KIP-996). Otherwise the voters that have lost their leader
    would wait for each other.

    It decides between arrival and answer, so the law looks at the follower at both moments.
    """

    name = "pre-votes are refused for a reason"
    cadence = Cadence.TOLD
    hears = (VOTE,)
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        # What each voter was at every arrival of a request; None if it was no such follower.
        self._arrivals: dict[Said, set[_Follower | None]] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        request = VoteRequest.FromString(said.request)
        if not request.pre_vote or stage not in (Stage.ARRIVED, Stage.ANSWERED):
            return
        follower = self._follower(request.voter_id)
        asked = said._replace(answer=b"")
        if stage is Stage.ARRIVED:
            self._arrivals.setdefault(asked, set()).add(follower)
            if len(self._arrivals) > _KEPT:
                del self._arrivals[next(iter(self._arrivals))]
        elif follower is not None and self._arrivals.get(asked) == {follower}:
            self._check(said, request, follower)

    def _follower(self, node_id: int) -> _Follower | None:
        node = self._cluster.controllers[node_id]
        core, process = node.core, node.process
        if core is None or process is None or core.role is not Role.FOLLOWER:
            return None
        if core.in_touch(process.world.clock.monotonic()):
            return None
        return _Follower(node.incarnation, core.epoch, (core.log.last_epoch, core.log.end_offset))

    def _check(self, said: Said, request: VoteRequest, follower: _Follower) -> None:
        answer = VoteResponse.FromString(said.answer)
        if answer.error != ErrorCode.NONE or answer.epoch != follower.epoch:
            return
        if (request.last_epoch, request.last_offset) < follower.log:
            return
        self.looked += 1
        if not answer.granted:
            self._report(
                f"{said.target} has not heard the leader of epoch {follower.epoch} for long, and "
                f"refuses its pre-vote to {said.source}, whose log is no worse"
            )
