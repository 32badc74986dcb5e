"""ShareGroupHeartbeat (76), version 1: members of share groups join, stay and leave (KIP-932).

Deviations: a member that waits for its first partitions is asked to come back soon.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.share.types import ShareHeartbeatAnswer, ShareHeartbeatRequest
from broker.service import share_groups
from broker.service.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import share_group_heartbeat as messages
from stele.wire.kafka.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    caller = request_context.caller
    names = request.subscribed_topic_names
    heartbeat = ShareHeartbeatRequest(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        None if names is None else tuple(names),
        caller.client_id or "",
        f"/{caller.address}",  # as Java writes an address without a name
    )
    try:
        answer = await share_groups.heartbeat(context, caller, heartbeat)
    except ApiError as error:
        answer = ShareHeartbeatAnswer(error.code, error.message or None)
    return _response(answer)


def _response(answer: ShareHeartbeatAnswer) -> ShareGroupHeartbeatResponse:
    assignment = None
    if answer.assigned is not None:
        assignment = Assignment(
            [
                TopicPartitions(topic_id, sorted(numbers))
                for topic_id, numbers in sorted(answer.assigned.items())
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


def refuse(
    request_context: RequestContext, request: ShareGroupHeartbeatRequest, error: ErrorCode
) -> ShareGroupHeartbeatResponse:
    return _response(ShareHeartbeatAnswer(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
