"""SaslHandshake (17), versions 0-1: a client says by which mechanism it will log in (KIP-43).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import sasl_handshake as messages
from stele.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def handle(
    context: BrokerContext, request_context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    gate = request_context.connection.gate
    if gate is None:  # the listener has no SASL
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    return await gate.handshake(request.mechanism, request_context.version)


def refuse(
    request_context: RequestContext, request: SaslHandshakeRequest, error: ErrorCode
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error)


SERVED = Served(messages.API, refuse, handle_async=handle)
