"""ExpireDelegationToken (40), versions 1-2, forwarded to the active controller (KIP-48).

Deviations: a token that is removed at once is answered with the present time. Kafka answers with
the negative period of the request.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import delegation_tokens
from broker.service.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import expire_delegation_token as messages
from stele.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from stele.wire.v1 import admin_pb2 as pb


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        expiry_ms = await delegation_tokens.change_expiry(
            context,
            request_context.caller,
            bytes(request.hmac),
            lambda token_id: pb.ExpireDelegationTokenRequest(
                token_id=token_id, expiry_period_ms=request.expiry_time_period_ms
            ),
        )
    except ApiError as error:
        return refuse(request_context, request, error.code)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


def refuse(
    request_context: RequestContext, request: ExpireDelegationTokenRequest, error: ErrorCode
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error)


SERVED = Served(messages.API, refuse, handle_async=handle)
