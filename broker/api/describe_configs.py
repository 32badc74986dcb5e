"""DescribeConfigs (32), versions 1-4: the configuration of topics, groups,
subscriptions to clients' metrics and of this broker.

Deviations: a resource named more than once is described once; a topic's synonyms name no coarser
spelling of a broker's key (log.retention.hours), and give the value in the unit of the finest one.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.config_view import RESOURCES_AT_ONCE, DescribedKey, describe_resource
from broker.service.context import BrokerContext
from metadata import effective
from metadata.config_keys import Type
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_configs as messages
from stele.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from storage.turns import in_slices

CONFIG_SOURCES = {  # their numbers in the protocol
    effective.DYNAMIC_TOPIC: 1,
    effective.DYNAMIC_GROUP: 8,
    effective.CLIENT_METRICS: 7,
    effective.DYNAMIC_BROKER: 2,
    effective.DYNAMIC_DEFAULT_BROKER: 3,
    effective.STATIC_BROKER: 4,
    effective.DEFAULT: 5,
}
_TYPES = {
    Type.BOOLEAN: 1,
    Type.STRING: 2,
    Type.INT: 3,
    Type.LONG: 5,
    Type.DOUBLE: 6,
    Type.LIST: 7,
    Type.PASSWORD: 9,
}


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    asked = {(each.resource_type, each.resource_name): each for each in request.resources}
    results = await in_slices(
        lambda resource: _describe(context, request_context, request, resource),
        asked.values(),
        RESOURCES_AT_ONCE,
    )
    return DescribeConfigsResponse(results=results)


def _describe(
    context: BrokerContext,
    request_context: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    try:
        entries = describe_resource(
            context, request_context.caller, resource.resource_type, resource.resource_name
        )
    except ApiError as error:
        return _failed(resource, error.code, error.message)
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _entry(entry, request)
            for entry in entries
            if wanted is None or entry.key.name in wanted
        ],
    )


def _entry(entry: DescribedKey, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(
            layer.name, None if entry.is_secret else layer.value, CONFIG_SOURCES[layer.source]
        )
        for layer in entry.layers
    ]
    return DescribeConfigsResourceResult(
        name=entry.key.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=CONFIG_SOURCES[entry.source],
        is_sensitive=entry.is_secret,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=_TYPES[entry.key.type],
        documentation=entry.key.doc if request.include_documentation else None,
    )


def _failed(
    resource: DescribeConfigsResource, error: ErrorCode, message: str
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error, message or None, resource.resource_type, resource.resource_name
    )


async def refuse(
    request_context: RequestContext, request: DescribeConfigsRequest, error: ErrorCode
) -> DescribeConfigsResponse:
    failed = await in_slices(lambda each: _failed(each, error, ""), request.resources)
    return DescribeConfigsResponse(results=failed)


SERVED = Served(messages.API, refuse, handle_async=handle)
