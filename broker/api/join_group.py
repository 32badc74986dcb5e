"""JoinGroup (11), versions 0-9: become a member of a group, or join its next generation.

The answer waits until the rebalance ends. Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.types import JoinAnswer, JoinRequest, MemberProtocol
from broker.service import groups
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import join_group as messages
from stele.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from storage.turns import in_slices

_REBALANCE_TIMEOUT_FROM = 1
_KNOWN_MEMBER_ID_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9


async def handle(
    context: BrokerContext, request_context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    version, caller = request_context.version, request_context.caller
    timeout_ms = request.session_timeout_ms
    if version >= _REBALANCE_TIMEOUT_FROM:
        timeout_ms = request.rebalance_timeout_ms
    join = JoinRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=timeout_ms,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=tuple(await in_slices(_protocol, request.protocols)),
        client_id=caller.client_id or "",
        client_host=f"/{caller.address}",  # as Java writes an address without a name
        reason=request.reason or "",
        requires_known_member_id=version >= _KNOWN_MEMBER_ID_FROM,
        supports_skipping_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )
    answer = await groups.as_member(context, caller, join)
    return _response(request_context, answer)


def _protocol(protocol: JoinGroupRequestProtocol) -> MemberProtocol:
    return MemberProtocol(protocol.name, bytes(protocol.metadata))


def _response(request_context: RequestContext, answer: JoinAnswer) -> JoinGroupResponse:
    protocol = answer.protocol
    if protocol is None and request_context.version < _NULL_PROTOCOL_FROM:
        protocol = ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[JoinGroupResponseMember(*member) for member in answer.members],
    )


def refuse(
    request_context: RequestContext, request: JoinGroupRequest, error: ErrorCode
) -> JoinGroupResponse:
    return _response(request_context, JoinAnswer(error, request.member_id))


SERVED = Served(messages.API, refuse, handle_async=handle, explains=True)
