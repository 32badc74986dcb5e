"""DeleteGroups (42), versions 0-2: groups without members are forgotten, with their offsets.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import group_deletion
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import delete_groups as messages
from stele.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from storage.turns import in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    check_named(len(request.groups_names), "groups")
    errors = await group_deletion.delete(context, request_context.caller, request.groups_names)
    results = await in_slices(
        lambda each: DeletableGroupResult(each[0], each[1].code),
        zip(request.groups_names, errors, strict=True),
    )
    return DeleteGroupsResponse(results=results)


async def refuse(
    request_context: RequestContext, request: DeleteGroupsRequest, error: ErrorCode
) -> DeleteGroupsResponse:
    refused = await in_slices(lambda each: DeletableGroupResult(each, error), request.groups_names)
    return DeleteGroupsResponse(results=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
