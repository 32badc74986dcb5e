"""DeleteGroups (42), versions 0-2: groups without members are forgotten, with their offsets.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import groups
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
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
    errors = await groups.delete(context, request_context.caller, request.groups_names)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id, error.code)
            for group_id, error in zip(request.groups_names, errors, strict=True)
        ]
    )


def refuse(
    request_context: RequestContext, request: DeleteGroupsRequest, error: ErrorCode
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(each, error) for each in request.groups_names]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
