"""Voters that start again."""

from __future__ import annotations

import json
from typing import Final, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from runtime.quorum.messages import END_QUORUM_EPOCH, FETCH, VOTE
from runtime.quorum.state import FILE_NAME as QUORUM_STATE_FILE
from stele.wire.v1.raft_pb2 import VoteRequest

_NONE: Final = -1


class VotersGoOnWithTheirLeader(Law):
    """A voter that starts, and knows another one that leads the epoch, first fetches from it. It
    stands for election only if it does not hear it, or hears that it leads no more: a restart alone
    costs no leader its epoch."""

    name = "voters go on with their leader"
    cadence = Cadence.TOLD
    hears = (FETCH, VOTE, END_QUORUM_EPOCH)
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._began: dict[str, str] = {}  # the process that has called last, by machine

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        if said.method.endswith(END_QUORUM_EPOCH):
            if stage is Stage.ARRIVED:
                self._began_if_runs(said.target)
            return
        if stage is not Stage.SENT:
            return
        node = self._node_on(said.source)
        if node is None or self._began.get(said.source) == node.incarnation:
            return
        self._began[said.source] = node.incarnation
        core = node.core
        epoch, leader = _known_leader(node)
        # Its log may know a later epoch than the file, and no voter that leads now.
        if core is None or core.epoch != epoch or leader not in core.voters.others(node.id):
            return
        self.looked += 1
        if said.method.endswith(VOTE):
            request = VoteRequest.FromString(said.request)
            self._report(
                f"{said.source} knows from its disk that {leader} leads epoch {epoch}, and begins "
                f"with a request for votes in epoch {request.epoch}"
            )

    def _began_if_runs(self, machine: str) -> None:
        """What the process there begins with follows from a message, not from its file."""
        node = self._node_on(machine)
        if node is not None:
            self._began[machine] = node.incarnation

    def _node_on(self, machine: str) -> SimNode | None:
        for node in self._cluster.controllers.values():
            if node.host == machine:
                return node
        return None


def _known_leader(node: SimNode) -> tuple[int, int]:
    """(epoch, leader or -1), as the voter's file says."""
    path = f"{node.metadata_log}/{QUORUM_STATE_FILE}"
    disk = node.machine.disk
    if disk.find(path) is None:
        return 0, _NONE
    fields = json.loads(bytes(disk.file(path).data))
    return fields["leaderEpoch"], fields["leaderId"]
