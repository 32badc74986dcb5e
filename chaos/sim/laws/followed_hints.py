"""Observers of the quorum that are told who leads."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from raft.ready import Role
from runtime.quorum.messages import FETCH
from stele.wire.v1.raft_pb2 import QuorumFetchRequest, QuorumFetchResponse

WITHIN_S: Final = 0.3
"""A fetch within so much time follows from the answer. If an answer is lost, it comes later: after
the fetch timeout."""


class _Hint(NamedTuple):
    leader: int
    epoch: int
    told_at: float


class ObserversAskTheLeader(Law):
    """An observer that is refused by a replica which names the leader of the epoch asks that leader
    next, as long as it stays in the epoch, and if it knows where that leader is. Example: the
    leader was added as a voter, and the observer's log does not reach so far."""

    name = "observers ask the leader"
    cadence = Cadence.TOLD
    hears = (FETCH,)
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._asked: dict[str, Said] = {}  # by machine: its last fetch, until it is answered
        self._hints: dict[str, _Hint] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is Stage.SENT:
            self._sent(said)
        elif stage is Stage.TAKEN and self._asked.get(said.source) == said._replace(answer=b""):
            del self._asked[said.source]
            self._answered(said)

    def _sent(self, said: Said) -> None:
        self._asked[said.source] = said
        hint = self._hints.pop(said.source, None)
        if hint is None or self._cluster.simulation.now - hint.told_at > WITHIN_S:
            return
        request = QuorumFetchRequest.FromString(said.request)
        node = self._cluster.nodes.get(request.replica_id)
        core = None if node is None else node.core
        if core is None or core.role is not Role.OBSERVER or request.epoch != hint.epoch:
            return
        if hint.leader not in core.voters.ids:
            return
        leader = self._cluster.nodes.get(hint.leader)
        self.looked += 1
        if leader is not None and leader.host != said.target:
            self._report(
                f"{said.source} was told that {leader.host} leads epoch {hint.epoch}, and asks "
                f"{said.target}"
            )

    def _answered(self, said: Said) -> None:
        answer = QuorumFetchResponse.FromString(said.answer)
        if not answer.error or answer.leader_id < 0:
            return
        request = QuorumFetchRequest.FromString(said.request)
        leader = self._cluster.nodes.get(answer.leader_id)
        names_another = leader is not None and leader.host not in (said.source, said.target)
        if request.epoch == answer.epoch and names_another:
            now = self._cluster.simulation.now
            self._hints[said.source] = _Hint(answer.leader_id, answer.epoch, now)
