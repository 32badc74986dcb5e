"""UnregisterBroker (64), version 0, forwarded to the active controller (KIP-500).

Deviations: stricter than Kafka. A broker that is alive, and one that alone has every record of some
partition, cannot go (INVALID_REQUEST).
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change
from broker.service.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import unregister_broker as messages
from stele.wire.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from stele.wire.v1 import admin_pb2 as pb

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        await accepted_change(
            context,
            request_context.caller,
            pb.UnregisterBrokerRequest(broker_id=request.broker_id),
            timeout_s=_TIMEOUT_S,
        )
    except ApiError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse()


def refuse(
    request_context: RequestContext, request: UnregisterBrokerRequest, error: ErrorCode
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
