"""AlterPartition: a leader proposes its ISR (KIP-497, KIP-841, KIP-903).

A proposal is a compare-and-set. It counts only if it names the partition's current leader epoch and
partition epoch, comes from the partition's leader, and if its members still have the registrations
under which the leader heard them.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller import cluster
from controller.machine import Context, ControllerResult, Decision
from controller.partitions import RulesByTopic, change
from metadata.image import MetadataImage
from metadata.partitions import RECOVERING, PartitionState, changed_state
from stele.error_meanings import explain
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse

Proposal = AlterPartitionRequest.Partition
IsrAnswer = AlterPartitionResponse.Partition


def alter_partitions(
    context: Context, request: AlterPartitionRequest
) -> ControllerResult[AlterPartitionResponse]:
    """Decide each proposal on its own; errors are per partition.

    Raises ApiError (STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED) for the request as a whole.
    """
    cluster.current(context, request)
    decision = Decision(context)
    proposals = _Proposals(context, request.broker_id)
    answers = [proposals.answer(proposal) for proposal in request.partitions]
    decision.extend(proposals.records)
    return decision.result(AlterPartitionResponse(partitions=answers))


class _Proposals:
    """The proposals of one request. Each sees the decisions of those before it, since a request may
    name a partition twice. An image after each would cost as much as its topic has partitions."""

    def __init__(self, context: Context, broker_id: int) -> None:
        self._context = context
        self._broker_id = broker_id
        self._rules = RulesByTopic(context.image, context.static)
        self._decided: dict[PartitionId, PartitionState] = {}
        self.records: list[pb.MetadataRecord] = []

    def answer(self, proposal: Proposal) -> IsrAnswer:
        image = self._context.image
        topic = image.topic_by_id(proposal.topic_id)
        if topic is None:
            return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_ID)
        key = PartitionId(proposal.topic_id, proposal.partition)
        state = self._decided.get(key) or image.partition(*key)
        if state is None:
            return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = _error(image, state, self._broker_id, proposal)
        if error is ErrorCode.INELIGIBLE_REPLICA:
            # The leader no longer counts on this member, which may soon be eligible again. A late
            # copy of the proposal must then find another partition epoch.
            self._write(key, state, pb.MetadataRecord(partition_change=_no_change(proposal)))
        if error is not ErrorCode.NONE:
            return _refused(proposal, error)
        record = change(
            key,
            state,
            self._rules.of(topic.name),
            isr=[member.broker_id for member in proposal.isr],
            recovery=proposal.leader_recovery_state,
        )
        if record is not None:
            state = self._write(key, state, record)
        return _accepted(proposal, state)

    def _write(
        self, key: PartitionId, state: PartitionState, record: pb.MetadataRecord
    ) -> PartitionState:
        self.records.append(record)
        after = self._decided[key] = changed_state(state, record.partition_change)
        return after


def _error(
    image: MetadataImage, state: PartitionState, broker_id: int, proposal: Proposal
) -> ErrorCode:
    """Why a proposal does not count; NONE if it does."""
    # The leader knows newer epochs than this controller: a later controller decided them.
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > (
        state.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member.broker_id for member in proposal.isr]
    if len(set(members)) < len(members) or not set(members) <= set(state.replicas):
        return ErrorCode.INVALID_REQUEST
    if broker_id not in members:
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovery_state == RECOVERING and (
        len(members) > 1 or state.leader_recovery_state != RECOVERING
    ):
        return ErrorCode.INVALID_REQUEST
    return _eligibility(image, state, proposal.isr)


def _eligibility(
    image: MetadataImage,
    state: PartitionState,
    members: Sequence[AlterPartitionRequest.Member],
) -> ErrorCode:
    """Each member must be active, with the broker epoch under which the leader heard it fetch.

    A broker that restarted in between may lack records that its earlier process had. A broker whose
    disk is full must not join: the controller takes such brokers out of ISRs. The same holds for a
    replica whose log directory is offline.
    """
    for member in members:
        registration = image.broker(member.broker_id)
        if (
            registration is None
            or not registration.active
            or registration.broker_epoch != member.broker_epoch
            or not (registration.may_join_isr or member.broker_id in state.isr)
            or not image.has_online(member.broker_id, state.directory_of(member.broker_id))
        ):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _no_change(proposal: Proposal) -> pb.PartitionChangeRecord:
    """A record that changes nothing but the partition epoch, which every record raises."""
    return pb.PartitionChangeRecord(topic_id=proposal.topic_id, partition=proposal.partition)


def _refused(proposal: Proposal, error: ErrorCode) -> IsrAnswer:
    return IsrAnswer(
        topic_id=proposal.topic_id,
        partition=proposal.partition,
        error=error,
        message=explain(error),
    )


def _accepted(proposal: Proposal, state: PartitionState) -> IsrAnswer:
    return IsrAnswer(
        topic_id=proposal.topic_id,
        partition=proposal.partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
        leader_recovery_state=state.leader_recovery_state,
    )
