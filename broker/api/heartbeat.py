"""Heartbeat (12), versions 0-4: a member of a group is alive, and hears of a rebalance.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.group import types
from broker.service import groups
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import heartbeat as messages
from stele.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(
    context: BrokerContext, request_context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    heartbeat = types.HeartbeatRequest(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    error = await groups.as_member(context, request_context.caller, heartbeat)
    return HeartbeatResponse(error_code=error)


def refuse(
    request_context: RequestContext, request: HeartbeatRequest, error: ErrorCode
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
