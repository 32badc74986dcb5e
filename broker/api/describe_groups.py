"""DescribeGroups (15), versions 0-5: groups of the classic protocol with their members.

Deviations: none known. A group that does not exist is told as dead, as by Kafka up to version 5.
"""

from __future__ import annotations

import asyncio

from broker.api.handler import NO_OPERATIONS, RequestContext, Served
from broker.coordinator.group.types import DescribeAnswer
from broker.service import groups
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from runtime.authorization.authorizer import Operation
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_groups as messages
from stele.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    check_named(len(request.groups), "groups")
    with_operations = request.include_authorized_operations
    described = await asyncio.gather(
        *(_described(context, request_context, each, with_operations) for each in request.groups)
    )
    return DescribeGroupsResponse(groups=list(described))


async def _described(
    context: BrokerContext, request_context: RequestContext, group_id: str, with_operations: bool
) -> DescribedGroup:
    caller = request_context.caller
    try:
        answer: DescribeAnswer = await groups.ask(
            context,
            caller,
            Operation.DESCRIBE,
            group_id,
            lambda machine, waiter, now: machine.describe(group_id, waiter, now),
        )
    except ApiError as error:
        return _refused(group_id, error.code)
    operations = NO_OPERATIONS
    if with_operations:
        operations = groups.group_operations(context, caller, group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=answer.state.value,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol,
        members=[DescribedGroupMember(*member) for member in answer.members],
        authorized_operations=operations,
    )


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(error_code=error, group_id=group_id, authorized_operations=NO_OPERATIONS)


def refuse(
    request_context: RequestContext, request: DescribeGroupsRequest, error: ErrorCode
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(each, error) for each in request.groups])


SERVED = Served(messages.API, refuse, handle_async=handle)
