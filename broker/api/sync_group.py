"""SyncGroup (14), versions 0-5: a member's share of the partitions, as the group's leader says.

The answer waits for the leader. Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.types import SyncRequest
from broker.service import groups
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import sync_group as messages
from stele.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(
    context: BrokerContext, request_context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse:
    sync = SyncRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    answer = await groups.as_member(context, request_context.caller, sync)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


def refuse(
    request_context: RequestContext, request: SyncGroupRequest, error: ErrorCode
) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


SERVED = Served(messages.API, refuse, handle_async=handle, explains=True)
