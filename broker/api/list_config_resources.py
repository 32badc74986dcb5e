"""ListConfigResources (74), versions 0-1: the resources that can have a configuration
(KIP-1142).

Version 0 asks for the subscriptions to clients' metrics (KIP-1000).

Deviations: a type named more than once is listed once.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.config_resources import list_resources
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import list_config_resources as messages
from stele.wire.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from stele.wire.v1.metadata_pb2 import ConfigResourceType
from storage.turns import in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    types = (
        request.resource_types
        if request_context.version > 0
        else [ConfigResourceType.CLIENT_METRICS]
    )
    found = await list_resources(context, request_context.caller, types)
    return ListConfigResourcesResponse(
        config_resources=await in_slices(lambda each: ConfigResource(each.name, each.type), found)
    )


def refuse(
    request_context: RequestContext, request: ListConfigResourcesRequest, error: ErrorCode
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
