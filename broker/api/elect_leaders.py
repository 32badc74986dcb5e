"""ElectLeaders (43), versions 0-2, forwarded to the active controller (KIP-183, KIP-460).

Deviations: the answer waits until this broker's own metadata has the decision, a second at most.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.api.handler import RequestContext, Served
from broker.service.changes import (
    accepted_change,
    check_named,
    patience_s,
)
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import elect_leaders as messages
from stele.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import SLICE_STEPS, Slices

_PREFERRED, _UNCLEAN = 0, 1


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return await _refused(
            request, ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}"
        )
    named = sum(len(topic.partitions) for topic in request.topic_partitions or [])
    check_named(named, "partitions")
    wishes = pb.ElectLeadersRequest(unclean=request.election_type == _UNCLEAN)
    slices = Slices(SLICE_STEPS)
    for topic in request.topic_partitions or []:
        for partition in topic.partitions:
            wishes.partitions.add(topic=topic.topic, partition=partition)
            await slices.step()
    if request.topic_partitions is not None and not wishes.partitions:
        return ElectLeadersResponse()  # none is not all
    timeout_s = patience_s(request.timeout_ms)
    try:
        answer = await accepted_change(context, request_context.caller, wishes, timeout_s=timeout_s)
    except ApiError as error:
        return await _refused(request, error.code, error.message)
    return await _results(
        (each.topic, each.partition, error_code(each.error), each.message)
        for each in answer.partitions
    )


async def _results(partitions: Iterable[tuple[str, int, ErrorCode, str]]) -> ElectLeadersResponse:
    slices = Slices(SLICE_STEPS)
    by_topic: dict[str, ReplicaElectionResult] = {}
    for topic, partition, error, message in partitions:
        of_topic = by_topic.setdefault(topic, ReplicaElectionResult(topic=topic))
        of_topic.partition_result.append(PartitionResult(partition, error, message or None))
        await slices.step()
    return ElectLeadersResponse(replica_election_results=list(by_topic.values()))


async def _refused(
    request: ElectLeadersRequest, error: ErrorCode, message: str = ""
) -> ElectLeadersResponse:
    """Version 1 has one field for the error. Version 0 has one for each partition."""
    response = await _results(
        (topic.topic, partition, error, message)
        for topic in request.topic_partitions or []
        for partition in topic.partitions
    )
    response.error_code = error
    return response


async def refuse(
    request_context: RequestContext, request: ElectLeadersRequest, error: ErrorCode
) -> ElectLeadersResponse:
    return await _refused(request, error)


SERVED = Served(messages.API, refuse, handle_async=handle)
