"""DeleteGroups (42), versions 0-2: groups without members are forgotten, with their offsets.

Deviations: none known.
"""

from __future__ import annotations

import asyncio

from broker.api.handler import RequestContext, Served
from broker.service import groups
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from runtime.authorization.authorizer import Operation
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import delete_groups as messages
from stele.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    check_named(len(request.groups_names), "groups")
    # At once, so that they share the coordinators' batches.
    errors = await asyncio.gather(
        *(_delete(context, request_context, group_id) for group_id in request.groups_names)
    )
    results = map(DeletableGroupResult, request.groups_names, errors)
    return DeleteGroupsResponse(results=list(results))


async def _delete(
    context: BrokerContext, request_context: RequestContext, group_id: str
) -> ErrorCode:
    try:
        error: ErrorCode = await groups.ask(
            context,
            request_context.caller,
            Operation.DELETE,
            group_id,
            lambda machine, waiter, now: machine.delete(group_id, waiter, now),
        )
    except ApiError as refused:
        return refused.code
    return error


def refuse(
    request_context: RequestContext, request: DeleteGroupsRequest, error: ErrorCode
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(each, error) for each in request.groups_names]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
