"""LeaveGroup (13), versions 0-5: members leave, or an administrator removes static ones (KIP-345).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.types import LeaveRequest, LeavingMember
from broker.service import groups
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import leave_group as messages
from stele.wire.kafka.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from storage.turns import in_slices

_SEVERAL_FROM = 3


async def handle(
    context: BrokerContext, request_context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    if request_context.version < _SEVERAL_FROM:
        members: tuple[LeavingMember, ...] = (LeavingMember(request.member_id, None),)
    else:
        members = tuple(await in_slices(_leaving, request.members))
    leave = LeaveRequest(request.group_id, members)
    answer = await groups.as_member(context, request_context.caller, leave)
    if request_context.version < _SEVERAL_FROM:
        (error,) = answer.members if answer.error is ErrorCode.NONE else (answer.error,)
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        error_code=answer.error,
        members=await in_slices(
            _told, zip(members, answer.members, strict=answer.error is ErrorCode.NONE)
        ),
    )


def _leaving(member: MemberIdentity) -> LeavingMember:
    return LeavingMember(member.member_id, member.group_instance_id, member.reason or "")


def _told(each: tuple[LeavingMember, ErrorCode]) -> MemberResponse:
    member, error = each
    return MemberResponse(member.member_id, member.group_instance_id, error)


def refuse(
    request_context: RequestContext, request: LeaveGroupRequest, error: ErrorCode
) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
