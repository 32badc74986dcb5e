"""ExpireDelegationToken (40), versions 1-2, forwarded to the active controller (KIP-48).

Deviations: a token that is removed at once is answered with the present time. Kafka answers with
the negative period of the request.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import delegation_tokens
from broker.service.changes import accepted_change
from broker.service.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import expire_delegation_token as messages
from stele.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from stele.wire.v1 import admin_pb2 as pb

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    caller = request_context.caller
    try:
        token_id = await delegation_tokens.id_of(
            context, caller, bytes(request.hmac), timeout_s=_TIMEOUT_S
        )
        wanted = pb.ExpireDelegationTokenRequest(
            token_id=token_id, expiry_period_ms=request.expiry_time_period_ms
        )
        answer = await accepted_change(context, caller, wanted, timeout_s=_TIMEOUT_S)
    except ApiError as error:
        return refuse(request_context, request, error.code)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=answer.expiry_ms)


def refuse(
    request_context: RequestContext, request: ExpireDelegationTokenRequest, error: ErrorCode
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error)


SERVED = Served(messages.API, refuse, handle_async=handle)
