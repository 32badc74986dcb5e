"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860).

These requests start a reassignment, give it another target or cancel it.
``controller.partitions.change`` completes it in the decision that puts the last replica of the
target into the ISR.

This is stricter than Kafka in one point: a cancellation or another target must leave at least
min.insync.replicas complete replicas, if there were that many. Kafka requires one, or none if the
topic allows unclean elections.
"""

from __future__ import annotations

from collections import Counter

from controller.assignment import Assignment
from controller.machine import Context, ControllerResult, Decision, check_size
from controller.partitions import RulesByTopic, change
from metadata.features import REASSIGNMENTS, require
from metadata.image import MetadataImage
from metadata.partitions import PartitionState, changed_state
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

Wish = AlterPartitionReassignmentsRequest.Partition
ReassignmentAnswer = AlterPartitionReassignmentsResponse.Partition


def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Start, redirect or cancel reassignments, each partition on its own. The same target again
    changes nothing.

    Raises ApiError POLICY_VIOLATION for a request of too many partitions, and UNSUPPORTED_VERSION
    if the finalized metadata.version has no reassignments.
    """
    check_size(len(request.partitions), "partitions")
    require(context.image, REASSIGNMENTS, "to reassign partitions")
    decision = Decision(context)
    # An image after each partition would cost as much as its topic has partitions. None of these
    # decisions depends on another one: each names its own partition.
    records: list[pb.MetadataRecord] = []
    rules = RulesByTopic(context.image, context.static)
    named = Counter((wish.topic, wish.partition) for wish in request.partitions)
    answers = []
    for wish in request.partitions:
        answer = ReassignmentAnswer(topic=wish.topic, partition=wish.partition)
        try:
            if named[wish.topic, wish.partition] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"the request names {wish.topic}-{wish.partition} twice",
                )
            record = _altered(context.image, rules, wish, request.keep_replication_factor)
            if record is not None:
                decision.charge((record,))
                records.append(record)
        except ApiError as error:
            answer.error, answer.message = error.code, error.message
        answers.append(answer)
    decision.extend(records)
    return decision.result(AlterPartitionReassignmentsResponse(partitions=answers))


def _altered(
    image: MetadataImage, rules_by_topic: RulesByTopic, wish: Wish, keep_factor: bool
) -> pb.MetadataRecord | None:
    """The record to write. None if the partition has this target already."""
    topic = image.topic(wish.topic)
    if topic is None or not 0 <= wish.partition < len(topic.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {wish.topic}-{wish.partition}",
        )
    state = topic.partitions[wish.partition]
    if wish.HasField("target"):
        target = tuple(wish.target.ids)
        _check_target(image, state, target, keep_factor=keep_factor)
    elif state.is_reassigning:
        target = state.original_replicas
    else:
        raise ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            f"{wish.topic}-{wish.partition} is not being reassigned",
        )
    key = PartitionId(topic.topic_id, wish.partition)
    rules = rules_by_topic.of(topic.name)
    record = change(key, state, rules, assignment=Assignment.towards(state, target))
    if record is None:
        return None
    after = changed_state(state, record.partition_change)
    enough = min(rules.min_insync_replicas, state.replication_factor)
    _check_outcome(wish, state, after, enough)
    return record


def _check_target(
    image: MetadataImage, state: PartitionState, target: tuple[int, ...], *, keep_factor: bool
) -> None:
    """Raises ApiError for an invalid target. A fenced broker may be in it: the reassignment waits
    until the broker is back."""
    if not target:
        fault = "it names no broker"
    elif len(set(target)) < len(target):
        fault = "it names a broker twice"
    elif unknown := [each for each in target if image.broker(each) is None]:
        fault = f"{_brokers(unknown)} not registered"
    else:
        fault = ""
    if fault:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"target {_list(target)}: {fault}")
    if keep_factor and len(target) != state.replication_factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"target {_list(target)} would change the replication factor from "
            f"{state.replication_factor} to {len(target)}, which the request forbids",
        )


def _check_outcome(wish: Wish, before: PartitionState, after: PartitionState, enough: int) -> None:
    """Raises ApiError if too few complete replicas would be left. A dropped replica deletes its
    log."""
    dropped = [each for each in before.replicas if each not in after.replicas]
    if not dropped or set(after.isr) == set(after.replicas):
        return
    knowing = len({*before.isr, *before.elr})
    left = 0 if after.unclean_elections > before.unclean_elections else len(after.isr + after.elr)
    if left < min(enough, knowing) or not after.isr:
        lagging = [each for each in after.replicas if each not in before.isr]
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{wish.topic}-{wish.partition}: without {_list(dropped)} too few replicas would "
            f"have every record (the ISR is {_list(before.isr)}): wait until more of "
            f"{_list(lagging)} are in sync, or give a target that keeps the others",
        )


def _brokers(ids: list[int]) -> str:
    if len(ids) == 1:
        return f"broker {ids[0]} is"
    return f"brokers {', '.join(map(str, ids))} are"


def _list(ids: list[int] | tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, ids))}]"


def list_partition_reassignments(
    context: Context, request: ListPartitionReassignmentsRequest
) -> ControllerResult[ListPartitionReassignmentsResponse]:
    """The reassignments under way, of the named partitions or of all. Unknown partitions are left
    out."""
    named = {(partition.topic, partition.partition) for partition in request.partitions}
    partitions = [
        ListPartitionReassignmentsResponse.Partition(
            topic=topic.name,
            partition=number,
            replicas=state.replicas,
            adding_replicas=state.adding_replicas,
            removing_replicas=state.removing_replicas,
        )
        for topic, number, state in context.image.sorted_partitions()
        if state.is_reassigning and (not named or (topic.name, number) in named)
    ]
    response = ListPartitionReassignmentsResponse(partitions=partitions)
    return Decision(context).result(response)
