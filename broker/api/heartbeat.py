"""Heartbeat (12), versions 0-4: a member of a group is alive, and hears of a rebalance.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import Reply, RequestContext, Served
from broker.coordinator.group import types
from broker.service import groups
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import heartbeat as messages
from stele.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class _Beat:
    """Answers a heartbeat as soon as the coordinator does, without a task: there are more
    heartbeats than other requests to coordinators."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def answer(self, answer: ErrorCode) -> None:
        self._reply(HeartbeatResponse(error_code=answer))

    refuse = answer


def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: HeartbeatRequest,
    reply: Reply,
) -> None:
    heartbeat = types.HeartbeatRequest(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    groups.submit_as_member(context, request_context.caller, heartbeat, _Beat(reply))


def refuse(
    request_context: RequestContext, request: HeartbeatRequest, error: ErrorCode
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle=handle)
