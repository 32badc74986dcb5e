"""SaslAuthenticate (36), versions 0-2: a step of a login (KIP-152, KIP-368).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import sasl_authenticate as messages
from stele.wire.kafka.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | None:
    gate = request_context.connection.gate
    if gate is None:
        return SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE,
            f"the listener {request_context.caller.listener} has no SASL",
        )
    return await gate.authenticate(bytes(request.auth_bytes))


def refuse(
    request_context: RequestContext, request: SaslAuthenticateRequest, error: ErrorCode
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error)


SERVED = Served(messages.API, refuse, handle_async=handle)
