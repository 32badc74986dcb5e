"""Answers of the quorum's replicas to each other."""

from __future__ import annotations

from typing import Any, Final, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.quorum_leaders import OneLeaderPerQuorumEpoch
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from raft.quorum import ReplicaKey
from runtime.quorum.messages import (
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    VOTE,
)
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb

MESSAGES: Final[dict[str, tuple[Any, Any]]] = {
    VOTE: (pb.VoteRequest, pb.VoteResponse),
    BEGIN_QUORUM_EPOCH: (pb.BeginQuorumEpochRequest, pb.BeginQuorumEpochResponse),
    END_QUORUM_EPOCH: (pb.EndQuorumEpochRequest, pb.EndQuorumEpochResponse),
    FETCH: (pb.QuorumFetchRequest, pb.QuorumFetchResponse),
    FETCH_SNAPSHOT: (pb.FetchSnapshotRequest, pb.FetchSnapshotResponse),
}


class QuorumAnswersAreTrue(Law):
    """A replica of the quorum refuses a request only for the reason that it gives, and names no
    leader but that of its epoch.

    No replica refuses the leader of an epoch that announces the beginning or the end of it. After
    the end of an epoch's leadership a replica does not name that leader any more. A replica that
    answers is at least in the epoch of the request, unless a node that is no voter asks for a
    pre-vote: it must not depose the leader.
    """

    name = "the quorum's answers are true"
    cadence = Cadence.TOLD
    hears = tuple(MESSAGES)

    def __init__(self, cluster: SimCluster, leaders: OneLeaderPerQuorumEpoch, report: Report):
        self._cluster = cluster
        self._leaders = leaders
        self._report = report

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.law(OneLeaderPerQuorumEpoch), scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is not Stage.ANSWERED or not self._is_here(said.target):
            return
        asked, told = MESSAGES[said.method]
        request, answer = asked.FromString(said.request), told.FromString(said.answer)
        self.looked += 1
        wrong = self._wrong_error(said, request, answer) or self._wrong_leader(answer)
        if wrong:
            name = said.method.rpartition("/")[2]
            self._report(f"{said.target} answers {name} of {said.source} {wrong}")

    def _wrong_error(self, said: Said, request: Any, answer: Any) -> str:
        error, own_id = answer.error, self._id_of(said.target)
        where = f"in epoch {answer.epoch} with {error}; it was asked in {request.epoch}"
        if error == ErrorCode.NONE:
            is_end = said.method == END_QUORUM_EPOCH and answer.epoch == request.epoch
            is_behind = answer.epoch < request.epoch and not self._disturbs(said, request, answer)
            if is_behind or (is_end and answer.leader_id >= 0):
                return f"{where}, and names the leader {answer.leader_id}"
        elif error == ErrorCode.FENCED_LEADER_EPOCH:
            if answer.epoch <= request.epoch:
                return where
        elif error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            if answer.epoch >= request.epoch:
                return where
        elif error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            if answer.leader_id == own_id:
                return f"{where}, and leads itself"
        elif error == ErrorCode.INVALID_REQUEST:
            if said.method in (BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH):
                return where
        elif error == ErrorCode.INCONSISTENT_VOTER_SET and request.candidate_id != own_id:
            return where
        return ""

    def _disturbs(self, said: Said, request: Any, answer: Any) -> bool:
        """Whether a stranger got no pre-vote, because the replica has a leader."""
        if said.method != VOTE or not request.pre_vote or answer.granted or answer.leader_id < 0:
            return False
        core = self._cluster.nodes[self._id_of(said.target)].core
        candidate = ReplicaKey(request.candidate_id, request.candidate_directory_id)
        return core is not None and candidate not in core.voters

    def _is_here(self, host: str) -> bool:
        """Whether it is a node of this cluster."""
        return any(node.host == host for node in self._cluster.nodes.values())

    def _id_of(self, host: str) -> int:
        return next(node.id for node in self._cluster.nodes.values() if node.host == host)

    def _wrong_leader(self, answer: Any) -> str:
        leader = self._leaders.leader_of(answer.epoch)
        if answer.leader_id >= 0 and leader not in (None, answer.leader_id):
            return f"that {answer.leader_id} leads epoch {answer.epoch}, which {leader} led"
        return ""
