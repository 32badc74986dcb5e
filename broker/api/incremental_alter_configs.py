"""IncrementalAlterConfigs (44), versions 0-1, forwarded to the active controller (KIP-339).

Deviations: any broker takes the changes of every broker. Broker loggers cannot be altered. An
operation appends to, or subtracts from, the value in force, which may be the cluster's. The answer
waits until this broker's own metadata has the decision, a second at most.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import config_changes
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import incremental_alter_configs as messages
from stele.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LIST_OPERATIONS = {_APPEND: pb.ListOperation.APPEND, _SUBTRACT: pb.ListOperation.SUBTRACT}


async def handle(
    context: BrokerContext, request_context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
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
    return IncrementalAlterConfigsResponse(responses=responses)


def _refusal(resource: AlterConfigsResource) -> tuple[ErrorCode, str] | None:
    for config in resource.configs:
        if not _SET <= config.config_operation <= _SUBTRACT:
            message = f"{config.name}: there is no operation {config.config_operation}"
            return ErrorCode.INVALID_REQUEST, message
    nulls = [
        config.name
        for config in resource.configs
        if config.value is None and config.config_operation != _DELETE
    ]
    return config_changes.refusal(resource.resource_type, nulls)


def _wish(resource: AlterConfigsResource) -> pb.AlterConfigsRequest.Resource:
    return pb.AlterConfigsRequest.Resource(
        resource=pb.ConfigResource(type=resource.resource_type, name=resource.resource_name),
        changes=[
            pb.AlterConfigsRequest.Change(
                name=config.name,
                value=None if config.config_operation == _DELETE else config.value,
                list_operation=_LIST_OPERATIONS.get(
                    config.config_operation, pb.ListOperation.REPLACE
                ),
            )
            for config in resource.configs
        ],
    )


async def refuse(
    request_context: RequestContext, request: IncrementalAlterConfigsRequest, error: ErrorCode
) -> IncrementalAlterConfigsResponse:
    refused = await in_slices(
        lambda each: AlterConfigsResourceResponse(
            error, None, each.resource_type, each.resource_name
        ),
        request.resources,
    )
    return IncrementalAlterConfigsResponse(responses=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
