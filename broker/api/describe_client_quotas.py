"""DescribeClientQuotas (48), versions 0-1 (KIP-546).

Deviations: the answer is sorted. A strict filter without components finds nothing, as in Kafka.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import client_quotas
from broker.service.context import BrokerContext
from metadata.client_quotas import QuotaEntity, Values
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_client_quotas as messages
from stele.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from stele.wire.v1 import admin_pb2 as pb


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        found = await client_quotas.describe(
            context,
            request_context.caller,
            context.image(),
            map(_component, request.components),
            is_strict=request.strict,
        )
    except ApiError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code,
            error_message=explain(error.code, error.message),
            entries=None,
        )
    return DescribeClientQuotasResponse(entries=[_entry(*each) for each in found])


def _component(component: ComponentData) -> pb.DescribeClientQuotasRequest.Component:
    return pb.DescribeClientQuotasRequest.Component(
        type=component.entity_type, match_type=component.match_type, match=component.match
    )


def _entry(entity: QuotaEntity, values: Values) -> EntryData:
    return EntryData(
        [EntityData(part.type, part.name) for part in entity],
        [ValueData(key, values[key]) for key in sorted(values)],
    )


def refuse(
    request_context: RequestContext, request: DescribeClientQuotasRequest, error: ErrorCode
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        error_code=error, error_message=explain(error), entries=None
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
