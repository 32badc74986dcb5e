"""What the quorum's replicas claim to have when they fetch."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from runtime.quorum.messages import FETCH
from stele.wire.v1.raft_pb2 import QuorumFetchRequest


class FetchesTellWhatIsDurable(Law):
    """A replica of the quorum fetches from an offset only if it has everything below it on disk: a
    leader takes the offset for an acknowledgement. Its epoch is on disk, too."""

    name = "fetches tell what is durable"
    cadence = Cadence.TOLD
    hears = (FETCH,)

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is not Stage.SENT:
            return
        request = QuorumFetchRequest.FromString(said.request)
        node = self._cluster.nodes.get(request.replica_id)
        core = None if node is None else node.core
        if core is None:
            return
        self.looked += 1
        durable = core.log.durable_end_offset
        if request.fetch_offset > durable:
            self._report(
                f"{said.source} fetches from {request.fetch_offset}, and has {durable} on disk"
            )
        if request.epoch == core.epoch and not core.promises_durable:
            self._report(f"{said.source} fetches in epoch {request.epoch}, which is not on disk")
