"""Refusals to delete records."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.methods import DELETE_RECORDS
from chaos.sim.cluster.view import replica_of
from chaos.sim.laws.arrivals import Arrivals
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.v1.admin_pb2 import DeleteRecordsRequest, DeleteRecordsResponse

Place = tuple[str, int]  # topic, partition


class DeletionsAreRefusedForAReason(Law):
    """A leader calls an offset out of range only if records below it are not committed."""

    name = "deletions are refused for a reason"
    cadence = Cadence.TOLD
    hears = (DELETE_RECORDS,)
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._arrivals = Arrivals[dict[Place, int]]()  # high watermarks, at the node that is asked

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is Stage.ARRIVED:
            request = DeleteRecordsRequest.FromString(said.request)
            self._arrivals.keep(said, self._high_watermarks(said.target, request))
        elif stage is Stage.ANSWERED and (known := self._arrivals.get(said)) is not None:
            self._check(said, known)

    def _check(self, said: Said, known: dict[Place, int]) -> None:
        request = DeleteRecordsRequest.FromString(said.request)
        wanted = {(each.topic, each.partition): each.offset for each in request.partitions}
        for answer in DeleteRecordsResponse.FromString(said.answer).partitions:
            place = answer.topic, answer.partition
            committed = known.get(place)
            if committed is None:
                continue
            self.looked += 1
            is_refused = answer.error == ErrorCode.OFFSET_OUT_OF_RANGE
            if is_refused and -1 <= wanted.get(place, -2) <= committed:
                self._report(
                    f"{said.target} calls {wanted[place]} of {place[0]}-{place[1]} out of range, "
                    f"and {committed} is committed"
                )

    def _high_watermarks(self, machine: str, request: DeleteRecordsRequest) -> dict[Place, int]:
        """The high watermarks of what a broker leads. A leader's only rise."""
        found: dict[Place, int] = {}
        for node in self._cluster.brokers.values():
            broker = node.broker
            if node.host != machine or broker is None:
                continue
            for each in request.partitions:
                topic = broker.image.topic(each.topic)
                if topic is None:
                    continue
                replica = replica_of(node, PartitionId(topic.topic_id, each.partition))
                if replica is not None and replica.machine.is_leader:
                    found[each.topic, each.partition] = replica.machine.high_watermark
        return found
