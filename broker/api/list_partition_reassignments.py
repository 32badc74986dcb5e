"""ListPartitionReassignments (46), version 0, answered by the active controller (KIP-455).

This broker's own metadata do not suffice: a reassignment that they lack may just have been started.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import ask, check_named, patience_s
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from runtime.authorization.authorizer import Operation
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import list_partition_reassignments as messages
from stele.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from stele.wire.v1 import admin_pb2 as pb


async def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse:
    asked = sum(len(topic.partition_indexes) for topic in request.topics or [])
    check_named(asked, "partitions")
    named = [
        pb.TopicPartitionName(topic=topic.name, partition=index)
        for topic in request.topics or []
        for index in topic.partition_indexes
    ]
    if request.topics is not None and not named:
        return ListPartitionReassignmentsResponse()
    try:
        answer = await ask(
            context,
            request_context.caller,
            Operation.DESCRIBE,
            pb.ListPartitionReassignmentsRequest(partitions=named),
            pb.ListPartitionReassignmentsResponse,
            timeout_s=patience_s(request.timeout_ms),
        )
    except ApiError as error:
        return _refused(error.code, error.message)
    if answer.error != ErrorCode.NONE:
        return _refused(error_code(answer.error), answer.message)
    by_topic: dict[str, OngoingTopicReassignment] = {}
    for each in answer.partitions:
        topic = by_topic.setdefault(each.topic, OngoingTopicReassignment(name=each.topic))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=each.partition,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding_replicas),
                removing_replicas=list(each.removing_replicas),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(by_topic.values()))


def _refused(error: ErrorCode, message: str = "") -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error, error_message=message or None)


def refuse(
    request_context: RequestContext, request: ListPartitionReassignmentsRequest, error: ErrorCode
) -> ListPartitionReassignmentsResponse:
    return _refused(error)


SERVED = Served(messages.API, refuse, handle_async=handle)
