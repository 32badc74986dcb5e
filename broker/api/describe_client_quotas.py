"""DescribeClientQuotas (48), versions 0-1: there are none.

Deviations: the components of the request are not checked, since nothing could match them.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import unbuilt
from broker.service.context import BrokerContext
from stele.error_meanings import explain
from stele.errors import ErrorCode
from stele.wire.kafka.messages import describe_client_quotas as messages
from stele.wire.kafka.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    unbuilt.check_quotas_described(context, request_context.caller)
    return DescribeClientQuotasResponse(entries=[])


def refuse(
    request_context: RequestContext, request: DescribeClientQuotasRequest, error: ErrorCode
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        error_code=error, error_message=explain(error), entries=None
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
