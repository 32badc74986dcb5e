"""ListGroups (16), versions 0-5: the groups that this broker coordinates.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.types import ListRequest
from broker.service import groups
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import list_groups as messages
from stele.wire.kafka.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    wanted = ListRequest(tuple(request.states_filter), tuple(request.types_filter))
    found = await groups.list_groups(context, request_context.caller, wanted)
    return ListGroupsResponse(
        groups=[
            ListedGroup(each.group_id, each.protocol_type, each.state.value, each.group_type.value)
            for each in found
        ]
    )


def refuse(
    request_context: RequestContext, request: ListGroupsRequest, error: ErrorCode
) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
