"""AlterPartitionReassignments (45), versions 0-1, forwarded to the active controller (KIP-455).

Deviations: the answer waits until this broker's own metadata has the decision, a second at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, check_named, patience_s
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import alter_partition_reassignments as messages
from stele.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import SLICE_STEPS, Slices, in_slices


async def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse:
    check_named(sum(len(topic.partitions) for topic in request.topics), "partitions")
    try:
        answer = await accepted_change(
            context,
            request_context.caller,
            pb.AlterPartitionReassignmentsRequest(
                partitions=await in_slices(_wish, _named(request)),
                keep_replication_factor=not request.allow_replication_factor_change,
            ),
            timeout_s=patience_s(request.timeout_ms),
        )
    except ApiError as error:
        return _refused(request, error.code, error.message)
    # The controller answers in the order it was asked.
    results = iter(answer.partitions)
    slices = Slices(SLICE_STEPS)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=await slices.map(lambda _: _result(next(results)), topic.partitions),
            )
            for topic in request.topics
        ],
    )


def _named(
    request: AlterPartitionReassignmentsRequest,
) -> Iterator[tuple[str, ReassignablePartition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.name, partition


def _wish(
    named: tuple[str, ReassignablePartition],
) -> pb.AlterPartitionReassignmentsRequest.Partition:
    topic, partition = named
    wish = pb.AlterPartitionReassignmentsRequest.Partition(
        topic=topic, partition=partition.partition_index
    )
    if partition.replicas is not None:
        wish.target.SetInParent()  # also an empty one: null alone means to cancel
        wish.target.ids.extend(partition.replicas)
    return wish


def _result(
    result: pb.AlterPartitionReassignmentsResponse.Partition,
) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=result.partition,
        error_code=error_code(result.error),
        error_message=result.message or None,
    )


def _refused(
    request: AlterPartitionReassignmentsRequest, error: ErrorCode, message: str = ""
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error,
        error_message=message or None,
    )


def refuse(
    request_context: RequestContext, request: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    return _refused(request, error)


SERVED = Served(messages.API, refuse, handle_async=handle)
