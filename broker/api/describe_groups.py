"""DescribeGroups (15), versions 0-6: groups of the classic protocol with their members.

Deviations: none known. A group that does not exist has the state Dead, from version 6 on with an
error (KIP-1043).
"""

from __future__ import annotations

from broker.api.handler import NO_OPERATIONS, RequestContext, Served
from broker.coordinator.group.types import DescribeAnswer, GroupState
from broker.service import groups
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_groups as messages
from stele.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from storage.turns import in_slices

_NOT_FOUND_FROM = 6


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    check_named(len(request.groups), "groups")
    with_operations = request.include_authorized_operations
    caller = request_context.caller
    found = await groups.describe(context, caller, request.groups)

    def tell(asked: tuple[str, DescribeAnswer | ApiError]) -> DescribedGroup:
        group_id, each = asked
        if isinstance(each, ApiError):
            return _refused(group_id, each.code, each.message)
        operations = NO_OPERATIONS
        if with_operations:
            operations = groups.group_operations(context, caller, group_id)
        return _described(request_context, each, operations)

    told = await in_slices(tell, zip(request.groups, found, strict=True))
    return DescribeGroupsResponse(groups=told)


def _described(
    request_context: RequestContext, answer: DescribeAnswer, operations: int
) -> DescribedGroup:
    error, message = ErrorCode.NONE, None
    if answer.state is GroupState.DEAD and request_context.version >= _NOT_FOUND_FROM:
        error = ErrorCode.GROUP_ID_NOT_FOUND
        message = f"there is no group {answer.group_id} of the classic protocol"
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=answer.group_id,
        group_state=answer.state.value,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol,
        members=[DescribedGroupMember(*member) for member in answer.members],
        authorized_operations=operations,
    )


def _refused(group_id: str, error: ErrorCode, message: str = "") -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=explain(error, message),
        group_id=group_id,
        authorized_operations=NO_OPERATIONS,
    )


async def refuse(
    request_context: RequestContext, request: DescribeGroupsRequest, error: ErrorCode
) -> DescribeGroupsResponse:
    refused = await in_slices(lambda each: _refused(each, error), request.groups)
    return DescribeGroupsResponse(groups=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
