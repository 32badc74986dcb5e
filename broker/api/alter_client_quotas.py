"""AlterClientQuotas (49), versions 0-1: refused, since quotas of clients are not built.

Deviations: every change is refused with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import unbuilt
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import alter_client_quotas as messages
from stele.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    EntityData,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    check_named(sum(1 + len(each.entity) for each in request.entries), "entities of quotas")
    return _refused(request, unbuilt.quota_refusal(context, request_context.caller))


def _refused(request: AlterClientQuotasRequest, why: ApiError) -> AlterClientQuotasResponse:
    message = explain(why.code, why.message)
    return AlterClientQuotasResponse(
        entries=[
            AlteredQuota(
                why.code,
                message,
                [EntityData(part.entity_type, part.entity_name) for part in each.entity],
            )
            for each in request.entries
        ]
    )


def refuse(
    request_context: RequestContext, request: AlterClientQuotasRequest, error: ErrorCode
) -> AlterClientQuotasResponse:
    return _refused(request, ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
