"""AlterConfigs (33), versions 0-2, forwarded to the active controller.

It replaces everything that is set on a resource: keys that the request does not name go back to
their defaults. IncrementalAlterConfigs changes single keys.

Deviations: as IncrementalAlterConfigs.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import config_changes
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import alter_configs as messages
from stele.wire.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    config_changes.check_size([len(resource.configs) for resource in request.resources])
    outcomes = await config_changes.alter(
        context,
        request_context.caller,
        await in_slices(_wish, request.resources),
        await in_slices(_refusal, request.resources),
        validate_only=request.validate_only,
    )
    responses = await in_slices(
        lambda each: AlterConfigsResourceResponse(
            each.error, each.message, each.resource_type, each.resource_name
        ),
        outcomes,
    )
    return AlterConfigsResponse(responses=responses)


def _refusal(resource: AlterConfigsResource) -> tuple[ErrorCode, str] | None:
    nulls = [config.name for config in resource.configs if config.value is None]
    return config_changes.refusal(resource.resource_type, nulls)


def _wish(resource: AlterConfigsResource) -> pb.AlterConfigsRequest.Resource:
    return pb.AlterConfigsRequest.Resource(
        resource=pb.ConfigResource(type=resource.resource_type, name=resource.resource_name),
        changes=[
            pb.AlterConfigsRequest.Change(name=config.name, value=config.value)
            for config in resource.configs
        ],
        replace_all=True,
    )


async def refuse(
    request_context: RequestContext, request: AlterConfigsRequest, error: ErrorCode
) -> AlterConfigsResponse:
    refused = await in_slices(
        lambda each: AlterConfigsResourceResponse(
            error, None, each.resource_type, each.resource_name
        ),
        request.resources,
    )
    return AlterConfigsResponse(responses=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
