"""ISRs that leaders propose and controllers accept."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.methods import ALTER_PARTITION
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import replica_of
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse

_ARRIVALS_KEPT = 200


class IsrProposalsAreFresh(Law):
    """A controller accepts an ISR only on the present partition epoch and with members in their
    present registrations. Members that the present leader proposes have everything committed.

    ``highest``: the highest high watermark ever seen, by partition.
    """

    name = "ISR proposals are fresh"
    cadence = Cadence.TOLD
    hears = (ALTER_PARTITION,)
    proof = Proof.CAMPAIGN

    def __init__(
        self,
        cluster: SimCluster,
        metadata: CommittedMetadata,
        report: Report,
        highest: dict[PartitionId, int],
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._report = report
        self._highest = highest
        # The brokers' registration epochs at the moment when a request arrived.
        self._registered: dict[Said, dict[int, int]] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.metadata, scene.report, scene.high_watermarks)

    def hear(self, stage: Stage, said: Said) -> None:
        request = AlterPartitionRequest.FromString(said.request)
        if stage is Stage.SENT:
            for proposal in request.partitions:
                self._check_proposal(request.broker_id, proposal)
        elif stage is Stage.ARRIVED:
            self._registered[said] = self._registrations(said.target)
            while len(self._registered) > _ARRIVALS_KEPT:
                del self._registered[next(iter(self._registered))]
        elif stage is Stage.ANSWERED:
            self._check_answers(said, request)

    def _check_proposal(self, leader: int, proposal: AlterPartitionRequest.Partition) -> None:
        """All members of a proposal that can still be accepted, new ones too, have what is
        committed by now.

        A member is a broker in one registration (KIP-903), and only that one is checked: a leader
        that repeats its proposal still names the earlier registration of a restarted broker.
        """
        image = self._metadata.newest
        state = None if image is None else image.partition(proposal.topic_id, proposal.partition)
        if (
            state is None
            or state.unclean_elections
            or (state.leader, state.leader_epoch) != (leader, proposal.leader_epoch)
            or state.partition_epoch != proposal.partition_epoch
        ):
            return
        partition = PartitionId(proposal.topic_id, proposal.partition)
        committed = self._highest.get(partition, 0)
        for member in proposal.isr:
            node = self._cluster.brokers[member.broker_id]
            replica = replica_of(node, partition)
            if replica is None or _registered_as(node) != member.broker_epoch:
                continue
            self.looked += 1
            if replica.log.durable_offset < committed:
                self._report(
                    f"{replica!r}: broker {member.broker_id} is proposed for the ISR, has "
                    f"{replica.log.durable_offset} on disk, and {committed} is committed"
                )

    def _check_answers(self, said: Said, request: AlterPartitionRequest) -> None:
        response = AlterPartitionResponse.FromString(said.answer)
        proposals = {(each.topic_id, each.partition): each for each in request.partitions}
        for answer in response.partitions:
            proposal = proposals.get((answer.topic_id, answer.partition))
            if proposal is None or answer.error != ErrorCode.NONE:
                continue
            what = f"partition {answer.partition} of {answer.topic_id.hex()[:8]}"
            if answer.partition_epoch > proposal.partition_epoch + 1:
                self._report(
                    f"{what}: an ISR that was proposed on partition epoch "
                    f"{proposal.partition_epoch} was taken as {answer.partition_epoch}"
                )
            self._check_registrations(said, proposal, what)

    def _check_registrations(
        self, said: Said, proposal: AlterPartitionRequest.Partition, what: str
    ) -> None:
        before, now = (
            self._registered.get(said._replace(answer=b"")),
            self._registrations(said.target),
        )
        if before is None:
            return
        for member in proposal.isr:
            known = before.get(member.broker_id), now.get(member.broker_id)
            self.looked += 1
            if member.broker_epoch not in known:
                self._report(
                    f"{what}: broker {member.broker_id} was taken into the ISR with epoch "
                    f"{member.broker_epoch}; it was registered with {known}"
                )

    def _registrations(self, machine: str) -> dict[int, int]:
        for node in self._cluster.controllers.values():
            if node.host == machine and node.node is not None and node.node.controller is not None:
                brokers = node.node.controller.image.brokers
                return {each.broker_id: each.broker_epoch for each in brokers.values()}
        return {}


def _registered_as(node: SimNode) -> int:
    """The broker epoch that its process goes by; -1 if it is down or not registered yet."""
    running = node.running
    broker = None if running is None else running.broker
    return -1 if broker is None else broker.replicas.broker_epoch
