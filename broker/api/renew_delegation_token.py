"""RenewDelegationToken (39), versions 1-2, forwarded to the active controller (KIP-48).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import delegation_tokens
from broker.service.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import renew_delegation_token as messages
from stele.wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from stele.wire.v1 import admin_pb2 as pb


async def handle(
    context: BrokerContext, request_context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        expiry_ms = await delegation_tokens.change_expiry(
            context,
            request_context.caller,
            bytes(request.hmac),
            lambda token_id: pb.RenewDelegationTokenRequest(
                token_id=token_id, renew_period_ms=request.renew_period_ms
            ),
        )
    except ApiError as error:
        return refuse(request_context, request, error.code)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


def refuse(
    request_context: RequestContext, request: RenewDelegationTokenRequest, error: ErrorCode
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error)


SERVED = Served(messages.API, refuse, handle_async=handle)
