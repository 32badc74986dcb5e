"""AlterPartition: a leader proposes its ISR (KIP-497, KIP-841, KIP-903).

A proposal is a compare-and-set. It counts only if it names the partition's current leader epoch and
partition epoch, comes from the partition's leader, and if its members still have the registrations
under which the leader heard them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from controller import cluster
from controller.machine import Context, ControllerResult, Decision
from controller.partitions import Rules, change
from metadata.image import MetadataImage
from metadata.partitions import RECOVERING, PartitionState
from stele.error_meanings import explain
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse

Proposal = AlterPartitionRequest.Partition
Answer = AlterPartitionResponse.Partition


def alter_partitions(
    context: Context, request: AlterPartitionRequest
) -> ControllerResult[AlterPartitionResponse]:
    """Decide each proposal on its own; errors are per partition.

    Raises ApiError (STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED) for the request as a whole.
    """
    cluster.current(context, request)
    decision = Decision(context)
    answers: list[Answer] = []
    for proposals in _without_repetitions(request.partitions):
        answers += _alter(decision, request.broker_id, proposals)
    return decision.result(AlterPartitionResponse(partitions=answers))


def _without_repetitions(proposals: Iterable[Proposal]) -> Iterator[list[Proposal]]:
    """The proposals in their order, divided so that no part names a partition twice."""
    part: dict[PartitionId, Proposal] = {}
    for proposal in proposals:
        key = PartitionId(proposal.topic_id, proposal.partition)
        if key in part:
            yield list(part.values())
            part = {}
        part[key] = proposal
    yield list(part.values())


def _alter(decision: Decision, broker_id: int, proposals: Sequence[Proposal]) -> list[Answer]:
    """Decide about proposals for different partitions, by one image. An image after each would cost
    as much as its topic has partitions."""
    rules: dict[str, Rules] = {}
    verdicts = [_verdict(decision, rules, broker_id, proposal) for proposal in proposals]
    records = [record for _, record in verdicts if record is not None]
    if records:
        decision.extend(records)
    return [
        _accepted(decision.image, proposal)
        if error is ErrorCode.NONE
        else _refused(proposal, error)
        for proposal, (error, _) in zip(proposals, verdicts, strict=True)
    ]


def _verdict(
    decision: Decision, rules: dict[str, Rules], broker_id: int, proposal: Proposal
) -> tuple[ErrorCode, pb.MetadataRecord | None]:
    """The error, and the record to write. ``rules``: those that are known, by topic."""
    image = decision.image
    topic = image.topic_by_id(proposal.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    state = image.partition(proposal.topic_id, proposal.partition)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    error = _error(image, state, broker_id, proposal)
    if error is ErrorCode.INELIGIBLE_REPLICA:
        # The leader no longer counts on this member, which may soon be eligible again. A late copy
        # of the proposal must then find another partition epoch.
        return error, pb.MetadataRecord(partition_change=_no_change(proposal))
    if error is not ErrorCode.NONE:
        return error, None
    if topic.name not in rules:
        rules[topic.name] = Rules.of(image, topic.name, decision.context.static)
    record = change(
        PartitionId(proposal.topic_id, proposal.partition),
        state,
        rules[topic.name],
        isr=[member.broker_id for member in proposal.isr],
        recovery=proposal.leader_recovery_state,
    )
    return ErrorCode.NONE, record


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
    disk is full must not join: the controller takes such brokers out of ISRs.
    """
    for member in members:
        registration = image.broker(member.broker_id)
        if (
            registration is None
            or not registration.active
            or registration.broker_epoch != member.broker_epoch
            or not (registration.may_join_isr or member.broker_id in state.isr)
        ):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _no_change(proposal: Proposal) -> pb.PartitionChangeRecord:
    """A record that changes nothing but the partition epoch, which every record raises."""
    return pb.PartitionChangeRecord(topic_id=proposal.topic_id, partition=proposal.partition)


def _refused(proposal: Proposal, error: ErrorCode) -> Answer:
    return Answer(
        topic_id=proposal.topic_id,
        partition=proposal.partition,
        error=error,
        message=explain(error),
    )


def _accepted(image: MetadataImage, proposal: Proposal) -> Answer:
    state = image.topics[proposal.topic_id].partitions[proposal.partition]
    return Answer(
        topic_id=proposal.topic_id,
        partition=proposal.partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
        leader_recovery_state=state.leader_recovery_state,
    )
